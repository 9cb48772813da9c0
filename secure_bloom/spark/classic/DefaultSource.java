package secure_parquet;

import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SessionConfigSupport;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsOverwriteV2;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The Python data source, with the options of tables in a catalog.
 *
 * Spark looks up a format by class name, "secure_parquet.DefaultSource", before it looks at data
 * sources in Python. Its own class for those drops what the catalog says about a table, so they
 * would receive neither its path nor its options.
 *
 * Compiled at run time by Janino, which makes no bridge methods and infers no types: hence the raw
 * types and the casts.
 */
public final class DefaultSource extends PythonDataSourceV2 implements SessionConfigSupport {
  static final String NAME = "secure_parquet";
  static final String POLICY = "policy";
  private static final String PARTITION_BY = "partition_by";
  private static final String[] SECRETS = {"parquet.encryption.key.list"};

  /** Spark takes options from settings of the session: spark.datasource.secure_parquet.policy. */
  public String keyPrefix() {
    return NAME;
  }

  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    Table table = super.getTable(schema, partitioning, properties);
    String provider = (String) properties.get(TableCatalog.PROP_PROVIDER);
    if (!NAME.equalsIgnoreCase(provider)) {
      return new PathTable(this, table); // of load() or save(), whose options Spark passes itself
    }
    Map options = options(properties);
    if (partitioning.length > 0) {
      String names = names(partitioning);
      if (options.containsKey(PARTITION_BY) && !options.get(PARTITION_BY).equals(names)) {
        throw new IllegalArgumentException("the table has PARTITIONED BY and option " + PARTITION_BY
            + ": remove the option");
      }
      options.put(PARTITION_BY, names);
    }
    return new CatalogTable(table, options, properties, partitioning);
  }

  /** The columns of PARTITIONED BY, as a list in JSON. */
  private static String names(Transform[] partitioning) {
    StringBuilder names = new StringBuilder();
    for (int i = 0; i < partitioning.length; i++) {
      String[] column = partitioning[i].references().length == 1
          ? partitioning[i].references()[0].fieldNames() : new String[0];
      if (!"identity".equals(partitioning[i].name()) || column.length != 1) {
        throw new IllegalArgumentException("CLUSTERED BY, CLUSTER BY and functions in PARTITIONED "
            + "BY do not reach " + NAME + ": use PARTITIONED BY (column, column)");
      }
      names.append(i == 0 ? "[" : ", ").append('"').append(
          column[0].replace("\\", "\\\\").replace("\"", "\\\"")).append('"');
    }
    return names.append("]").toString();
  }

  /** What OPTIONS and LOCATION of a table say. */
  private static Map options(Map properties) {
    Map options = new HashMap();
    for (Iterator i = properties.entrySet().iterator(); i.hasNext();) {
      Map.Entry entry = (Map.Entry) i.next();
      String name = (String) entry.getKey();
      if (name.startsWith(TableCatalog.OPTION_PREFIX)) {
        options.put(name.substring(TableCatalog.OPTION_PREFIX.length()).toLowerCase(Locale.ROOT),
            entry.getValue());
      }
    }
    if (properties.get("path") != null) {
      options.put("path", properties.get("path"));
    }
    for (int i = 0; i < SECRETS.length; i++) {
      if (options.containsKey(SECRETS[i])) {
        throw new IllegalArgumentException("option " + SECRETS[i] + ": keys must not be stored in "
            + "a catalog: put them in a keyring file, and specify it in option keys");
      }
    }
    return options;
  }

  /** Spark's own source; a new one for each use, because it keeps the options of its first use. */
  static PythonDataSourceV2 pythonSource() {
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName(NAME);
    return source;
  }
}

/** What both tables below take from the one that they wrap. */
abstract class WrappedTable implements SupportsRead, SupportsWrite {
  protected final Table table;

  WrappedTable(Table table) {
    this.table = table;
  }

  public String name() {
    return table.name();
  }

  public StructType schema() {
    return table.schema();
  }

  public Set capabilities() {
    return table.capabilities();
  }
}

/** A folder; the writer is told how the session overwrites partitions. */
final class PathTable extends WrappedTable {
  private final PythonDataSourceV2 source;

  PathTable(PythonDataSourceV2 source, Table table) {
    super(table);
    this.source = source;
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new Scans(DefaultSource.NAME, source, schema(), options);
  }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return ((SupportsWrite) table).newWriteBuilder(WriteInfo.withSession(info, info.options()));
  }
}

final class CatalogTable extends WrappedTable {
  private final Map options;
  private final Map properties;
  private final Transform[] partitioning;

  CatalogTable(Table table, Map options, Map properties, Transform[] partitioning) {
    super(table);
    this.options = options;
    this.partitioning = partitioning;
    this.properties = new HashMap(properties);
    this.properties.remove("path"); // which Spark shows as the location
  }

  public Map properties() {
    return properties;
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap query) {
    return new Scans(DefaultSource.NAME, DefaultSource.pythonSource(), schema(), merged(query));
  }

  public Transform[] partitioning() {
    return partitioning;
  }

  public Set capabilities() {
    Set all = new HashSet(table.capabilities());
    all.add(TableCapability.OVERWRITE_DYNAMIC);
    if (partitioning.length > 0) {
      all.add(TableCapability.OVERWRITE_BY_FILTER);
    }
    return all;
  }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    Map merged = new HashMap(merged(info.options()));
    merged.put("of_table", "true"); // so some may be for reading only
    SupportsWrite writing = (SupportsWrite) DefaultSource.pythonSource().getTable(
        schema(), new Transform[0], Collections.EMPTY_MAP);
    return new Writes(writing, info, merged);
  }

  /** The options of the table, and those of one query, which win. */
  private CaseInsensitiveStringMap merged(CaseInsensitiveStringMap query) {
    Map merged = new HashMap(options);
    WriteInfo.addSession(merged, query);
    return new CaseInsensitiveStringMap(merged);
  }
}

/** A write to a table: it appends, replaces the table, or replaces partitions. */
final class Writes implements SupportsOverwriteV2, SupportsDynamicOverwrite {
  private final SupportsWrite table;
  private final LogicalWriteInfo info;
  private final Map options;
  private boolean truncates = false;

  Writes(SupportsWrite table, LogicalWriteInfo info, Map options) {
    this.table = table;
    this.info = info;
    this.options = options;
  }

  public WriteBuilder truncate() {
    truncates = true;
    return this;
  }

  /** As writeTo(...).overwritePartitions() asks for, whatever the setting of the session. */
  public WriteBuilder overwriteDynamicPartitions() {
    options.put(WriteInfo.OVERWRITE.toLowerCase(Locale.ROOT), "dynamic");
    return truncate();
  }

  /** Always true: if it cannot, the data source raises an error that says more than Spark's. */
  public boolean canOverwrite(Predicate[] predicates) {
    return true;
  }

  /** As INSERT OVERWRITE ... PARTITION (day = ...) asks for, while the session is not dynamic. */
  public WriteBuilder overwrite(Predicate[] predicates) {
    options.put("overwritten_partition", Conditions.json(predicates));
    return truncate();
  }

  public Write build() {
    WriteBuilder python = table.newWriteBuilder(WriteInfo.withSession(info, options));
    return (truncates ? ((SupportsTruncate) python).truncate() : python).build();
  }
}

final class WriteInfo implements LogicalWriteInfo {
  static final String OVERWRITE = "partitionOverwriteMode";
  private final LogicalWriteInfo info;
  private final CaseInsensitiveStringMap options;

  /** With some options, and with settings of the session, which Spark drops for streams. */
  static WriteInfo withSession(LogicalWriteInfo info, Map options) {
    Map merged = new HashMap();
    merged.put(OVERWRITE.toLowerCase(Locale.ROOT),
        SQLConf.get().getConfString("spark.sql.sources." + OVERWRITE, "static"));
    addSession(merged, options);
    return new WriteInfo(info, new CaseInsensitiveStringMap(merged));
  }

  /** Adds the policy of the session to options that have none, and options that win over both. */
  static void addSession(Map merged, Map options) {
    String policy = SQLConf.get().getConfString(
        "spark.datasource." + DefaultSource.NAME + "." + DefaultSource.POLICY, null);
    if (policy != null && !merged.containsKey(DefaultSource.POLICY)) {
      merged.put(DefaultSource.POLICY, policy);
    }
    for (Iterator i = options.entrySet().iterator(); i.hasNext();) {
      Map.Entry entry = (Map.Entry) i.next();
      merged.put(((String) entry.getKey()).toLowerCase(Locale.ROOT), entry.getValue());
    }
  }

  WriteInfo(LogicalWriteInfo info, CaseInsensitiveStringMap options) {
    this.info = info;
    this.options = options;
  }

  public CaseInsensitiveStringMap options() {
    return options;
  }

  public String queryId() {
    return info.queryId();
  }

  public StructType schema() {
    return info.schema();
  }

  public Optional rowIdSchema() {
    return info.rowIdSchema();
  }

  public Optional metadataSchema() {
    return info.metadataSchema();
  }
}
