package secure_bloom.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.hadoop.metadata.ColumnPath;
import org.apache.parquet.schema.GroupType;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.Type;

/**
 * Tables of Delta Lake, whose log repeats the minimum and maximum of columns in plaintext.
 *
 * Delta passes the properties of a table to the writer of each of its files.
 */
final class DeltaTables {
  private static final String LOG = "_delta_log";
  private static final String COLUMNS = "delta.dataSkippingStatsColumns";
  private static final String NUMBER = "delta.dataSkippingNumIndexedCols";
  private static final int DEFAULT_NUMBER = 32;
  private static final String MAPPING = "delta.columnMapping.mode";
  private static final String COLLECT = "spark.databricks.delta.stats.collect";

  /** Whether this is a checkpoint: a part of the log, which has no rows, and which all must read. */
  static boolean isOfLog(Path file) {
    Path folder = file.getParent();
    if (folder.getName().equals("_sidecars")) {
      folder = folder.getParent();
    }
    return folder.getName().equals(LOG);
  }

  /** Refuses a file of a table if the log would get statistics of its encrypted columns. */
  static void check(Configuration conf, Path file, MessageType schema, Map columns) {
    if (columns.isEmpty() || !conf.getBoolean(COLLECT, true) || !isInTable(conf, file)) {
      return;
    }
    List leaves = schema.getColumns();
    Map places = new HashMap();
    count(schema, "", 0, places);
    for (int i = 0; i < leaves.size(); i++) {
      ColumnPath leaf = ColumnPath.get(((ColumnDescriptor) leaves.get(i)).getPath());
      if (columns.containsKey(leaf) && isIndexed(conf, leaf, places)) {
        throw new ParquetCryptoRuntimeException("nothing was written: column " + leaf.toDotString()
            + " is encrypted, but the log of its Delta Lake table would repeat its minimum and "
            + "maximum in plaintext. Set the table property " + COLUMNS + " to columns that need "
            + "not be encrypted, or " + NUMBER + " to 0");
      }
    }
  }

  private static boolean isIndexed(Configuration conf, ColumnPath leaf, Map places) {
    String names = conf.get(COLUMNS);
    if (names != null) {
      return isMapped(conf) || isNamed(names, leaf);  // the names are those of the table
    }
    int number = conf.getInt(NUMBER, DEFAULT_NUMBER);
    for (String path = leaf.toDotString(); ; path = path.substring(0, path.lastIndexOf('.'))) {
      if (places.containsKey(path)) {
        return number < 0 || ((Integer) places.get(path)).intValue() < number;
      }
    }
  }

  /** Adds the place of each column, as Delta counts them: a list or map is one. */
  private static int count(GroupType group, String prefix, int place, Map places) {
    for (int i = 0; i < group.getFieldCount(); i++) {
      Type field = group.getType(i);
      String path = prefix + field.getName();
      if (isStruct(field)) {
        place = count(field.asGroupType(), path + ".", place, places);
      } else {
        places.putIfAbsent(path, Integer.valueOf(place++));
      }
    }
    return place;
  }

  private static boolean isStruct(Type field) {
    if (field.isPrimitive() || field.isRepetition(Type.Repetition.REPEATED)
        || field.getLogicalTypeAnnotation() != null) {
      return false;
    }
    GroupType group = field.asGroupType();  // a variant is one column, and may have no annotation
    return !(group.containsField("metadata") && group.containsField("value"));
  }

  /** Refuses a policy where files have other names of columns than the table. */
  static void checkNames(Configuration conf) {
    if (isMapped(conf)) {
      throw new ParquetCryptoRuntimeException("nothing was written: a policy knows columns by "
          + "their names, and with " + MAPPING + " the files of this Delta Lake table have other "
          + "names than the table. Use a table without column mapping");
    }
  }

  private static boolean isMapped(Configuration conf) {
    return !conf.get(MAPPING, "none").equals("none");
  }

  private static boolean isNamed(String names, ColumnPath leaf) {
    String path = leaf.toDotString().toLowerCase(Locale.ROOT) + ".";
    String unquoted = names.replace("``", "\0").replace("`", "").replace('\0', '`');
    String[] each = unquoted.toLowerCase(Locale.ROOT).split(",");
    for (int i = 0; i < each.length; i++) {
      if (path.startsWith(each[i].trim() + ".")) {
        return true;
      }
    }
    return false;
  }

  /** Delta writes to a file's final place: a table, its partitions, or one other folder in it. */
  private static boolean isInTable(Configuration conf, Path file) {
    if (file.toUri().getPath().contains("/_temporary/")) {
      return false;
    }
    try {
      boolean isAbove = false;
      for (Path folder = file.getParent(); folder != null; folder = folder.getParent()) {
        if (folder.getFileSystem(conf).exists(new Path(folder, LOG))) {
          return true;
        }
        if (folder.getName().indexOf('=') < 1) {
          if (isAbove) {
            return false;
          }
          isAbove = true;
        }
      }
      return false;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
