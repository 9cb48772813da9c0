package secure_parquet;

import java.util.Collections;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.ContinuousStream;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.internal.connector.SupportsMetadata;
import org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/**
 * Scans of which each has its own reader in Python, which knows the conditions of its query.
 *
 * Spark's own table for Python data sources has one reader for all its uses (4.1 to 4.3), so that
 * conditions of one query would lose rows of another. Spark 4.0 passes no conditions on. Compiled by
 * Janino, see DefaultSource.
 */
final class Scans implements ScanBuilder, SupportsPushDownCatalystFilters {
  private final String name;
  private final PythonDataSourceV2 source;
  private final StructType schema;
  private final CaseInsensitiveStringMap options;
  private Seq pushed = Nil$.MODULE$;

  Scans(String name, PythonDataSourceV2 source, StructType schema,
      CaseInsensitiveStringMap options) {
    this.name = name;
    this.source = source;
    this.schema = schema;
    this.options = options;
  }

  /** Keeps conditions that all rows must meet. Spark evaluates all of them on the rows as well. */
  public Seq pushFilters(Seq filters) {
    pushed = filters;
    return filters;
  }

  /** None of which Spark would show or use anything. */
  public Predicate[] pushedFilters() {
    return new Predicate[0];
  }

  public Scan build() {
    Conditions conditions = new Conditions(pushed);
    SupportsRead table = (SupportsRead) new BoundSource(name, source, conditions).getTable(
        schema, new Transform[0], Collections.EMPTY_MAP);
    return new ConditionalScan(table.newScanBuilder(options).build(), conditions);
  }
}

/** Spark's data source, whose readers know some conditions. For one scan. */
final class BoundSource extends PythonDataSourceV2 {
  private final PythonDataSourceV2 source;
  private final Conditions conditions;

  BoundSource(String name, PythonDataSourceV2 source, Conditions conditions) {
    this.source = source;
    this.conditions = conditions;
    setShortName(name);
  }

  public UserDefinedPythonDataSource source() {
    return source.source();
  }

  public PythonDataSourceCreationResult getOrCreateDataSourceInPython(
      String name, CaseInsensitiveStringMap options, Option schema) {
    PythonDataSourceCreationResult created =
        source.getOrCreateDataSourceInPython(name, options, schema);
    return new PythonDataSourceCreationResult(
        conditions.bind(created.dataSource()), created.schema());
  }
}

/** Spark's scan, which says in plans which conditions it knows. */
public final class ConditionalScan implements Scan, SupportsMetadata {
  private final Scan scan;
  private final Conditions conditions;

  ConditionalScan(Scan scan, Conditions conditions) {
    this.scan = scan;
    this.conditions = conditions;
  }

  public String description() {
    return scan.description() + " PushedFilters: " + conditions;
  }

  public scala.collection.immutable.Map getMetaData() {
    return new scala.collection.immutable.Map.Map1("PushedFilters", conditions.toString());
  }

  public Conditions conditions() {
    return conditions;
  }

  public StructType readSchema() {
    return scan.readSchema();
  }

  public Batch toBatch() {
    return scan.toBatch();
  }

  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    conditions.setCheckpoint(checkpoint);
    return scan.toMicroBatchStream(checkpoint);
  }

  public ContinuousStream toContinuousStream(String checkpoint) {
    return scan.toContinuousStream(checkpoint);
  }

  public CustomMetric[] supportedCustomMetrics() {
    return scan.supportedCustomMetrics();
  }

  public CustomTaskMetric[] reportDriverMetrics() {
    return scan.reportDriverMetrics();
  }

  public Scan.ColumnarSupportMode columnarSupportMode() {
    return scan.columnarSupportMode();
  }
}
