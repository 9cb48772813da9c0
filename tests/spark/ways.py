"""Spark's ways to write Parquet files, each with options of that write."""

from tests.spark.helpers import PLAINTEXT, settings


def save(session, options, path):
    session.table("people").write.options(**options).mode("append").parquet(path)


def partitions(session, options, path):
    session.table("people").write.options(**options).partitionBy("city").parquet(path)


def version_2(session, options, path):
    with settings(session, {"spark.sql.sources.useV1SourceList": ""}):
        save(session, options, path)


def save_as_table(session, options, path):
    session.table("people").write.options(**options, path=path).saveAsTable("made")


def write_to(session, options, path):
    session.table("people").writeTo("made").using("parquet").options(
        **options, path=path).create()


def as_select(session, options, path):
    session.sql(f"create table made using parquet options ({_sql(options)}) location '{path}' "
                "as select * from people")


def directory(session, options, path):
    session.sql(f"insert overwrite directory '{path}' using parquet options ({_sql(options)}) "
                "select * from people")


def _table(session, path, clauses):
    session.sql("create table bound (ssn string, city string, id bigint) using parquet "
                f"{clauses} location '{path}'")


def insert(session, options, path):
    _table(session, path, f"options ({_sql(options)})")
    session.sql("insert into bound select * from people")


def insert_into(session, options, path):
    _table(session, path, f"options ({_sql(options)})")
    session.table("people").write.insertInto("bound")


def properties(session, options, path):
    _table(session, path, f"options ('plaintext' 'true') tblproperties ({_sql(options)})")
    session.sql("insert overwrite bound select * from people")


def insert_with(session, options, path):
    _table(session, path, "")
    pairs = ", ".join(f"`{name}` = '{value}'" for name, value in options.items())
    session.sql(f"insert into bound with ({pairs}) select * from people")


def altered(session, options, path):
    _table(session, path, "")
    pairs = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    session.sql(f"alter table bound set serdeproperties ({pairs})")
    session.sql("insert into bound select * from people")


def stream(session, options, path, start=lambda writer, path: writer.start(path)):
    with settings(session, PLAINTEXT):
        session.table("people").drop("ssn").write.parquet(f"{path}-in", mode="overwrite")
    stream = session.readStream.schema("city string, id bigint").parquet(f"{path}-in").selectExpr(
        "concat('ssn-', id) as ssn", "city", "id")
    start(stream.writeStream.options(**options, checkpointLocation=f"{path}-checkpoint").trigger(
        availableNow=True), path).awaitTermination()


def stream_to_table(session, options, path):
    stream(session, options, path, lambda writer, path: writer.toTable(
        "made", format="parquet", path=path))


def each_batch(session, options, path):
    stream(session, {}, path, lambda writer, path: writer.foreachBatch(
        lambda batch, number: batch.write.options(**options).parquet(path)).start())


def _sql(options):
    return ", ".join(f"'{name}' '{value}'" for name, value in options.items())


#: each writes the rows of the view ``people`` to a path, with some options
WAYS = (save, partitions, version_2, save_as_table, write_to, as_select, directory, insert,
        insert_into, properties, insert_with, altered, stream, stream_to_table,
        each_batch)


def drop_tables(session):
    """Drop the tables that some of the ways create."""
    for name in ("bound", "made"):
        session.sql(f"drop table if exists {name}")
