package secure_bloom.spark;

import java.lang.reflect.Field;
import java.util.UUID;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;

/**
 * Where a batch of a streaming query goes.
 *
 * By reflection, because the classes are in other packages in other releases of Spark. Public,
 * because two jars in two class loaders contain it.
 */
public final class StreamWrites {
  private static final String QUERY = "sql.streaming.queryId";
  private static final String OURS = "secure_parquet";
  // What does not leave the session, or runs code of the user, who writes batches by other plans.
  private static final String[] OTHERS = {
      "ForeachBatchSink", "ForeachWrite$", "MemoryStreamingWrite", "NoopStreamingWrite$"};

  /**
   * The sink of the stream to which this whole plan belongs; null if there is none.
   *
   * Spark's optimizer sees that a stream writes only if the sink has Spark's newer interface. The
   * others, such as folders of files, are those of the query that runs in this thread.
   */
  public static Object sink(TreeNode plan) {
    String name = name(plan);
    if (name.equals("WriteToContinuousDataSource")) {
      return get(plan, "write");
    }
    if (name.equals("WriteToDataSourceV2")) {
      Object write = get(plan, "batchWrite");
      return name(write).equals("MicroBatchWrite") ? get(write, "writeSupport") : null;
    }
    String id = SparkContext.getOrCreate().getLocalProperty(QUERY);
    if (id == null || name.equals("Subquery")) {
      return null;
    }
    Object query = ((SparkSession) SparkSession.active()).sharedState().activeStreamingQueries()
        .get(UUID.fromString(id));
    Object sink = query == null ? null : get(query, "sink");
    return sink != null && isOld(sink.getClass()) ? sink : null;
  }

  private static boolean isOld(Class type) {
    Class[] interfaces = type.getInterfaces();
    for (int i = 0; i < interfaces.length; i++) {
      if (interfaces[i].getSimpleName().equals("Sink") || isOld(interfaces[i])) {
        return true;
      }
    }
    return type.getSuperclass() != null && isOld(type.getSuperclass());
  }

  public static boolean isFiles(Object sink) {
    return name(sink).equals("FileStreamSink");
  }

  /** Whether the sink is ours, or no place where others read. */
  public static boolean isAllowed(Object sink) {
    for (int i = 0; i < OTHERS.length; i++) {
      if (name(sink).startsWith(OTHERS[i])) {
        return true;
      }
    }
    return name(sink).equals("PythonStreamingWrite") && OURS.equals(get(sink, "shortName"));
  }

  /** The name of a class without its package; that of an anonymous class is the one around it. */
  public static String name(Object object) {
    String name = object.getClass().getName();
    return name.substring(name.lastIndexOf('.') + 1);
  }

  public static Object get(Object object, String name) {
    for (Class type = object.getClass(); type != null; type = type.getSuperclass()) {
      try {
        Field field = type.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(object);
      } catch (NoSuchFieldException e) {
        continue;
      } catch (IllegalAccessException e) {
        throw new IllegalStateException(e);
      }
    }
    throw new IllegalStateException(object.getClass().getName() + " has no field " + name
        + ", so it cannot be checked whether a stream would store sensitive columns in plaintext");
  }
}
