package secure_bloom.spark;

import java.util.Iterator;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.command.DataWritingCommand;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.DataType;
import scala.Product;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Refuses writes whose options, or whose table, would put something else in the place of the
 * session's policy, or of the class that enforces it: then that class would not be asked.
 *
 * A rule of the optimizer, as SensitiveWrites. Compiled by Janino, see NativeCrypto.
 */
public final class BoundOptions extends Rule {
  private static final String FACTORY = "parquet.crypto.factory.class";
  private static final String OURS = "secure_bloom.spark.NativeCrypto";
  private static final String POLICY = "secure_bloom.native.policy"; // and with spark. before it
  private static final int DEPTH = 4; // a command, an option, a table, its storage

  /** Once for each session. */
  public void install(SparkSession spark) {
    Installed.install(this, spark);
  }

  public TreeNode apply(TreeNode plan) {
    if (conf().getConfString("spark." + POLICY, null) == null) {
      return plan;
    }
    Object sink = StreamWrites.sink(plan);
    if (isWrite(plan)) {
      boolean isOurs = check(plan, DEPTH);
      if (plan instanceof V2WriteCommand
          && ((V2WriteCommand) plan).table() instanceof DataSourceV2Relation) {
        DataSourceV2Relation table = (DataSourceV2Relation) ((V2WriteCommand) plan).table();
        isOurs |= check(table.options(), 1) | check(table.table().properties(), 1);
      }
      checkSession(isOurs);
    } else if (sink != null && StreamWrites.isFiles(sink)) {
      checkSession(check(StreamWrites.get(sink, "options"), 1));
    }
    return plan;
  }

  private static boolean isWrite(TreeNode plan) {
    String name = StreamWrites.name(plan);
    return plan instanceof DataWritingCommand || plan instanceof V2WriteCommand
        || plan instanceof Command && (name.startsWith("Insert") || name.startsWith("Save")
            || name.startsWith("Write") || name.contains("AsSelect"));
  }

  /** Checks all options in an object, whatever Spark calls them; whether one names our class. */
  private static boolean check(Object object, int depth) {
    if (object instanceof scala.collection.Map) {
      return checkOptions(CollectionConverters.asJava((scala.collection.Map) object));
    }
    if (object instanceof Map) {
      return checkOptions((Map) object);
    }
    boolean isOurs = false;
    if (depth > 0 && object instanceof Product && !(object instanceof DataType)) {
      for (Iterator i = CollectionConverters.asJava(((Product) object).productIterator());
          i.hasNext();) {
        Object part = i.next();
        isOurs |= !(part instanceof TreeNode) && check(part, depth - 1);
      }
    }
    return isOurs;
  }

  private static boolean checkOptions(Map options) {
    boolean isOurs = false;
    for (Iterator i = options.entrySet().iterator(); i.hasNext();) {
      Map.Entry option = (Map.Entry) i.next();
      String name = String.valueOf(option.getKey()).toLowerCase(Locale.ROOT);
      name = name.startsWith("option.") ? name.substring("option.".length()) : name;
      if (name.equals(FACTORY)) {
        if (!OURS.equals(option.getValue())) {
          throw refusal("option " + FACTORY + " would replace the class that enforces it");
        }
        isOurs = true;
      } else if (name.equals(POLICY) || name.equals("spark." + POLICY)) {
        throw refusal("option " + name + " would replace it");
      }
    }
    return isOurs;
  }

  /** A setting of the session is as strong as an option, if there is no option. */
  private void checkSession(boolean isOurs) {
    if (!isOurs) {
      String own = conf().getConfString(FACTORY, null);
      own = own != null ? own : SparkContext.getOrCreate().hadoopConfiguration().get(FACTORY);
      if (!OURS.equals(own)) {
        throw refusal("setting " + FACTORY + " of the session or the application is not "
            + OURS + ", which enforces it");
      }
    }
  }

  private static IllegalArgumentException refusal(String why) {
    return new IllegalArgumentException("nothing was written: the session has a policy of "
        + "native.enable, which a write cannot replace, and " + why + ". Remove it; to write "
        + "without the policy, use another session");
  }
}
