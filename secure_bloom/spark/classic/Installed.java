package secure_bloom.spark;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import scala.jdk.javaapi.CollectionConverters;

/** Rules of a session's optimizer. Public, because two jars in two class loaders contain it. */
public final class Installed {
  /** Once for each session, whatever is called how often. */
  public static void install(Rule rule, SparkSession spark) {
    ExperimentalMethods methods = spark.experimental();
    List rules = new ArrayList(CollectionConverters.asJava(methods.extraOptimizations()));
    for (Iterator i = rules.iterator(); i.hasNext();) {
      if (i.next().getClass().getName().equals(rule.getClass().getName())) {
        return;
      }
    }
    rules.add(rule);
    methods.extraOptimizations_$eq(CollectionConverters.asScala(rules).toSeq());
  }
}
