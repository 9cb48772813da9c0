package secure_bloom.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.hadoop.metadata.ColumnPath;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.Type;

/**
 * Tables of Delta Lake, whose log repeats the minimum and maximum of columns in plaintext.
 *
 * Delta passes the properties of a table to the writer of each of its files.
 */
final class DeltaTables {
  private static final String LOG = "_delta_log";
  // Of all kinds of checkpoints, of sidecar files, and of files that Delta renames to one of them.
  private static final Pattern CHECKPOINT = Pattern.compile(
      "\\.?[0-9]{20}\\.checkpoint(\\.[0-9a-f-]+)*\\.parquet(\\.[0-9a-f-]+\\.tmp)?");
  private static final List ACTIONS = Arrays.asList(new String[] {"txn", "add", "remove", "cdc",
      "metaData", "protocol", "commitInfo", "domainMetadata", "checkpointMetadata", "sidecar"});
  private static final String COLUMNS = "delta.dataSkippingStatsColumns";
  private static final String NUMBER = "delta.dataSkippingNumIndexedCols";
  private static final String MAPPING = "delta.columnMapping.mode";
  private static final String COLLECT = "spark.databricks.delta.stats.collect";

  /**
   * Whether this is a checkpoint: a part of the log, which has no rows, and which all must read.
   *
   * The folder alone does not tell: anything may be written there.
   */
  static boolean isCheckpoint(Path file, MessageType schema) {
    Path folder = file.getParent();
    if (folder.getName().equals("_sidecars")) {
      folder = folder.getParent();
    }
    if (!folder.getName().equals(LOG) || !CHECKPOINT.matcher(file.getName()).matches()) {
      return false;
    }
    for (Iterator i = schema.getFields().iterator(); i.hasNext();) {
      Type field = (Type) i.next();
      if (field.isPrimitive() || !ACTIONS.contains(field.getName())) {
        return false;
      }
    }
    return true;
  }

  /**
   * Refuses a file of a table if the log could get statistics of its encrypted columns.
   *
   * Which columns are the first ones is not known here: files may have them in another order.
   */
  static void check(Configuration conf, Path file, Map columns) {
    if (columns.isEmpty() || !conf.getBoolean(COLLECT, true) || !isInTable(conf, file)) {
      return;
    }
    String names = conf.get(COLUMNS);
    if (names == null && conf.get(NUMBER, "").equals("0")) {
      return;
    }
    for (Iterator i = columns.keySet().iterator(); i.hasNext();) {
      ColumnPath leaf = (ColumnPath) i.next();
      if (names == null || isMapped(conf) || isNamed(names, leaf)) {
        throw new ParquetCryptoRuntimeException("nothing was written: column " + leaf.toDotString()
            + " is encrypted, but the log of its Delta Lake table would repeat its minimum and "
            + "maximum in plaintext. Set the table property " + COLUMNS + " to columns that need "
            + "not be encrypted, or " + NUMBER + " to 0");
      }
    }
  }

  /** Refuses a policy where files have other names of columns than the table. */
  static void checkNames(Configuration conf) {
    if (isMapped(conf)) {
      throw new ParquetCryptoRuntimeException("nothing was written: a policy knows columns by "
          + "their names, and with " + MAPPING + " the files of this Delta Lake table have other "
          + "names than the table. Use a table without column mapping");
    }
  }

  /** Whether the files have other names of columns than the table and its properties. */
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
