package secure_bloom.spark;

import java.util.Iterator;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.command.DataWritingCommand;
import org.apache.spark.sql.execution.datasources.InsertIntoDataSourceCommand;
import org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand;
import org.apache.spark.sql.execution.datasources.SaveIntoDataSourceCommand;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.Seq;
import scala.collection.immutable.Map;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Refuses to write columns whose metadata names a master key with a format that does not encrypt.
 *
 * A rule of the optimizer, which sees each plan before it runs, also that of each batch of a stream,
 * and changes nothing. Compiled by Janino, see DefaultSource.
 */
public final class SensitiveWrites extends Rule {
  private static final String KEY = "secure_bloom.key";
  private static final String FACTORY = "parquet.crypto.factory.class";
  private static final String BY_PROPERTIES = "PropertiesDrivenCryptoFactory"; // of parquet-java
  private static final String[] KEYS = {
      "parquet.encryption.column.keys", "parquet.encryption.uniform.key"};

  /** Once for each session. */
  public void install(SparkSession spark) {
    Installed.install(this, spark);
  }

  public TreeNode apply(TreeNode plan) {
    if (plan instanceof InsertIntoHadoopFsRelationCommand) {
      InsertIntoHadoopFsRelationCommand command = (InsertIntoHadoopFsRelationCommand) plan;
      String format = command.fileFormat().toString();
      // Their values go into folder names. In the query the optimizer may have replaced them with
      // expressions, which have no metadata.
      for (Iterator i = CollectionConverters.asJava(command.partitionColumns()).iterator();
          i.hasNext();) {
        Attribute column = (Attribute) i.next();
        check(new StructField(column.name(), column.dataType(), true, column.metadata()), "",
            "partitionBy");
      }
      if (!format.equals("Parquet") || !isEncrypted(command.options())) {
        check(command.query(), format);
      }
    } else if (plan instanceof DataWritingCommand) {
      check(((DataWritingCommand) plan).query(), plan.nodeName());
    } else if (plan instanceof SaveIntoDataSourceCommand) {
      SaveIntoDataSourceCommand command = (SaveIntoDataSourceCommand) plan;
      check(command.query(), command.dataSource().getClass().getSimpleName());
    } else if (plan instanceof InsertIntoDataSourceCommand) {
      check(((InsertIntoDataSourceCommand) plan).query(), plan.nodeName());
    } else if (plan instanceof V2WriteCommand) {
      V2WriteCommand command = (V2WriteCommand) plan;
      String table = command.table() instanceof DataSourceV2Relation
          ? ((DataSourceV2Relation) command.table()).table().name() : command.table().name();
      if (!table.equals("secure_parquet") && !table.equals("noop-table")) {
        check(command.query(), table);
      }
    } else if (StreamWrites.sink(plan) != null) {
      checkStream(StreamWrites.sink(plan), (LogicalPlan) plan);
    }
    return plan;
  }

  private void checkStream(Object sink, LogicalPlan plan) {
    // Plans that write have no columns of their own.
    LogicalPlan query = plan.output().isEmpty() && plan.children().size() == 1
        ? (LogicalPlan) plan.children().head() : plan;
    if (!StreamWrites.isFiles(sink)) {
      if (!StreamWrites.isAllowed(sink)) {
        check(query, StreamWrites.name(sink));
      }
      return;
    }
    String format = StreamWrites.get(sink, "fileFormat").toString();
    for (Iterator i = CollectionConverters.asJava(
        (Seq) StreamWrites.get(sink, "partitionColumnNames")).iterator(); i.hasNext();) {
      String name = (String) i.next();
      StructField[] fields = query.schema().fields();
      for (int j = 0; j < fields.length; j++) {
        if (fields[j].name().equalsIgnoreCase(name)) {
          check(fields[j], "", "partitionBy");
        }
      }
    }
    if (!format.equals("Parquet") || !isEncrypted((Map) StreamWrites.get(sink, "options"))) {
      check(query, format);
    }
  }

  /** Whether options of the write, the session or the application make parquet-java encrypt. */
  private boolean isEncrypted(Map options) {
    String factory = find(options, FACTORY);
    if (factory == null || !factory.endsWith(BY_PROPERTIES)) {
      return factory != null; // ours checks the columns itself; others cannot be checked
    }
    return find(options, KEYS[0]) != null || find(options, KEYS[1]) != null;
  }

  private String find(Map options, String name) {
    Option option = options.get(name);
    if (option.isDefined()) {
      return (String) option.get();
    }
    String own = conf().getConfString(name, null);
    return own != null ? own : SparkContext.getOrCreate().hadoopConfiguration().get(name);
  }

  private static void check(LogicalPlan query, String format) {
    StructField[] fields = query.schema().fields();
    for (int i = 0; i < fields.length; i++) {
      check(fields[i], "", format);
    }
  }

  private static void check(StructField field, String prefix, String format) {
    String path = prefix + field.name();
    if (field.metadata().contains(KEY)) {
      throw new IllegalArgumentException("nothing was written: column " + path + " is sensitive, "
          + "as its metadata " + KEY + " says, and " + format + " would store it in plaintext. Use "
          + "format secure_parquet, or Spark's Parquet writer with secure_bloom.spark.native; to "
          + "make the column public, remove its metadata: withMetadata(\"" + path + "\", {})");
    }
    check(field.dataType(), path + ".", format);
  }

  private static void check(DataType type, String prefix, String format) {
    if (type instanceof StructType) {
      StructField[] fields = ((StructType) type).fields();
      for (int i = 0; i < fields.length; i++) {
        check(fields[i], prefix, format);
      }
    } else if (type instanceof ArrayType) {
      check(((ArrayType) type).elementType(), prefix, format);
    } else if (type instanceof MapType) {
      check(((MapType) type).keyType(), prefix, format);
      check(((MapType) type).valueType(), prefix, format);
    }
  }
}
