package secure_bloom.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.schema.MessageType;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand;
import org.apache.spark.sql.execution.datasources.SaveIntoDataSourceCommand;
import org.apache.spark.sql.execution.datasources.parquet.SparkToParquetSchemaConverter;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.immutable.Map;

/**
 * Warns of rules of a policy that match no column of what is written: a name may be misspelt.
 *
 * A rule of the optimizer, as SensitiveWrites, because the log of the driver is where users look.
 * Compiled by Janino, see NativeCrypto.
 */
public final class UnusedRules extends Rule {
  private static final Logger LOG = LoggerFactory.getLogger("secure_bloom.spark.native");
  private static final String PARQUET = "Parquet";
  private static final int MAX_WARNED = 1000; // so many different warnings in a session
  private final Set warned = new HashSet();

  /** Once for each session. */
  public void install(SparkSession spark) {
    Installed.install(this, spark);
  }

  public TreeNode apply(TreeNode plan) {
    Object sink = StreamWrites.sink(plan);
    if (plan instanceof InsertIntoHadoopFsRelationCommand) {
      InsertIntoHadoopFsRelationCommand command = (InsertIntoHadoopFsRelationCommand) plan;
      if (command.fileFormat().toString().equals(PARQUET)) {
        warn(DataTypeUtils.fromAttributes(command.outputColumns()), command.options(),
            command.outputPath());
      }
    } else if (plan instanceof SaveIntoDataSourceCommand) {
      SaveIntoDataSourceCommand command = (SaveIntoDataSourceCommand) plan;
      if (StreamWrites.name(command.dataSource()).equals("DeltaDataSource")) {
        Option path = command.options().get("path");
        warn(command.query().schema(), null,
            path.isDefined() ? new Path((String) path.get()) : null);
      }
    } else if (plan instanceof V2WriteCommand) {
      V2WriteCommand command = (V2WriteCommand) plan;
      if (command.table() instanceof DataSourceV2Relation && isParquet(
          StreamWrites.name(((DataSourceV2Relation) command.table()).table()))) {
        warn(((LogicalPlan) command.table()).schema(), null, null);
      }
    } else if (sink != null && StreamWrites.isFiles(sink)
        && StreamWrites.get(sink, "fileFormat").toString().equals(PARQUET)) {
      LogicalPlan query = (LogicalPlan) (plan.children().size() == 1
          && ((LogicalPlan) plan).output().isEmpty() ? plan.children().head() : plan);
      warn(query.schema(), (Map) StreamWrites.get(sink, "options"),
          new Path((String) StreamWrites.get(sink, "path")));
    }
    return plan;
  }

  private static boolean isParquet(String table) {
    return table.equals("ParquetTable") || table.equals("DeltaTableV2");
  }

  /** options are those of the write, and folder is where it writes, unless null: not known. */
  private void warn(StructType columns, Map options, Path folder) {
    String session = conf().getConfString(NativeCrypto.POLICY, null);
    JsonNode own = ofOptions(options);
    if (session == null && own == null) {
      return;
    }
    MessageType schema = new SparkToParquetSchemaConverter(conf()).convert(columns);
    warn(session == null ? null : Sealed.parse(session), schema, folder);
    warn(own, schema, folder);
  }

  private void warn(JsonNode policy, MessageType schema, Path folder) {
    // A table that is known by its name only may be anywhere, so rules for folders do not count.
    Path file = new Path(folder == null ? new Path("/") : folder, "part");
    List unused = policy == null ? null : new Policies(policy, file).unused(schema);
    if (unused != null && !unused.isEmpty()) {
      String message = (folder == null ? "a table" : folder.toString()) + ": no column matches "
          + String.join(", ", unused) + " of the policy; correct the policy if a name is misspelt";
      synchronized (warned) {
        if (warned.size() < MAX_WARNED && warned.add(message)) {
          LOG.warn(message.replaceAll("\\p{Cntrl}", "?"));
        }
      }
    }
  }

  /** The policy of native.write_options, in options of a write or settings of the session. */
  private JsonNode ofOptions(Map options) {
    Option option = options == null ? Option.empty() : options.get(NativeCrypto.WRITE);
    String sealed = option.isDefined() ? (String) option.get()
        : conf().getConfString(NativeCrypto.WRITE, null);
    if (sealed == null) {
      return null;
    }
    try {
      Configuration conf = SparkContext.getOrCreate().hadoopConfiguration();
      JsonNode plan = Sealed.open(conf, NativeCrypto.WRITE, sealed);
      return plan.has("policy") ? plan.get("policy") : plan.get("required");
    } catch (ParquetCryptoRuntimeException e) {
      return null; // the tasks refuse these options
    }
  }
}
