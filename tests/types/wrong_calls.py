"""A user's mistakes, each of which mypy reports in its line. It is never run."""

import pyarrow as pa

import secure_bloom
from secure_bloom import BloomFilterOptions, ParquetFile, ParquetWriter, UniformKey

KEY = b"0123456789abcdef"
table = pa.table({"a": [1, 2]})

secure_bloom.reed_table("x")  # error: attr-defined
secure_bloom.write_table(table, "x", bloom_filterz=3)  # error: call-arg
secure_bloom.write_table(table, 3)  # error: arg-type
secure_bloom.write_table(table, "x", bloom_filters=3)  # error: arg-type
secure_bloom.write_table(table, "x", bloom_filters={3: True})  # error: dict-item
secure_bloom.write_table(table, "x", encryption=KEY)  # error: arg-type
secure_bloom.write_table(table, "x", keys=KEY)  # error: arg-type
secure_bloom.write_table(table, "x", kms=KEY)  # error: call-arg
secure_bloom.write_table(table, "x", row_group_size="1000")  # error: arg-type
secure_bloom.write_table(table, "x", write_statistics=3)  # error: arg-type
secure_bloom.write_table(table, "x", encryption_properties=None)  # error: call-arg
secure_bloom.write_table(table, "x", policy={"a": "pii"})  # error: arg-type
secure_bloom.write_table({"a": [1]}, "x")  # error: dict-item
secure_bloom.write_table([{"a": 1}], "x")  # error: list-item
secure_bloom.write_table("x.parquet", "x")  # error: arg-type
secure_bloom.write_table(b"PAR1", "x")  # error: arg-type
secure_bloom.write_table(None, "x")  # error: arg-type
secure_bloom.write_dataset([1, 2], "x")  # error: list-item, list-item
secure_bloom.write_dataset(table, 3)  # error: arg-type
secure_bloom.scan("x", kms=None)  # error: call-arg
print(secure_bloom.scan("x").rows)  # error: attr-defined
secure_bloom.write_dataset(table, "x", mode="ignore")  # error: arg-type
secure_bloom.write_dataset(table, "x", partition_by=3)  # error: arg-type
secure_bloom.write_dataset(table, "x", max_rows="3")  # error: call-arg
secure_bloom.write_dataset(table, "x", encryption=UniformKey(KEY))  # error: arg-type
print(secure_bloom.write_dataset(table, "x").row)  # error: attr-defined
secure_bloom.Policy(sensitiv=["a"])  # error: call-arg
secure_bloom.Policy(default="closed")  # error: arg-type
secure_bloom.Policy(columns={"a": 3})  # error: dict-item
ParquetWriter("x")  # error: call-arg
ParquetWriter("x", table.schema, compresion="zstd")  # error: call-arg
ParquetWriter("x", table.schema).write(3)  # error: arg-type
secure_bloom.read_table("x", keyz=None)  # error: call-arg
secure_bloom.read_table()  # error: call-arg
secure_bloom.find("x", 5, ["a"])  # error: arg-type
secure_bloom.read_table("x", keys=3)  # error: arg-type
secure_bloom.read_table("x", columns="a")  # error: arg-type
secure_bloom.read_table("x", filters="a == 1")  # error: arg-type
secure_bloom.read_table("x", filters=("a", "==", 1))  # error: arg-type
secure_bloom.read_table("x", filters=[("a", 1)])  # error: list-item
secure_bloom.read_table("x", require_encryption=3)  # error: arg-type
secure_bloom.read_table("x", on_missing_key="nulls")  # error: arg-type
ParquetFile("x", KEY)  # error: arg-type
ParquetFile("x").prun([("a", "==", 1)])  # error: attr-defined
ParquetFile("x").read_bloom_filter("a", 0)  # error: arg-type, arg-type
ParquetFile("x").read_bloom_filter(0, "a").check(5)  # error: union-attr
UniformKey("0123456789abcdef")  # error: arg-type
BloomFilterOptions(fp=0.1)  # error: call-arg
secure_bloom.verify_file("x", column=["a"])  # error: call-arg
secure_bloom.attach("x", ["a"], KEY)  # error: arg-type
secure_bloom.attach()  # error: call-arg
secure_bloom.attach("x", policy=["a"])  # error: arg-type
secure_bloom.seal("x", None, dryrun=True)  # error: call-arg
secure_bloom.strip(3)  # error: arg-type
secure_bloom.audit("x", scan="no")  # error: arg-type
secure_bloom.open_kms(KEY)  # error: arg-type
