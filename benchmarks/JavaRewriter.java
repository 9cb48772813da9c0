import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.ColumnEncryptionProperties;
import org.apache.parquet.crypto.FileEncryptionProperties;
import org.apache.parquet.hadoop.metadata.ColumnPath;
import org.apache.parquet.hadoop.rewrite.ParquetRewriter;
import org.apache.parquet.hadoop.rewrite.RewriteOptions;

/**
 * Encrypts plaintext files with parquet-java's rewriter, each column with a key of its own.
 *
 * <p>A request is a line: path of the file, path of the new one, and columns, separated by tabs.
 * The answer: wall-clock and CPU seconds of this thread, and 0.
 */
public final class JavaRewriter {
  private static final byte[] KEY = new byte[16];

  public static void main(String[] arguments) throws Exception {
    Arrays.fill(KEY, (byte) 1); // zeros are refused
    BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
    Configuration configuration = new Configuration();
    for (String line = requests.readLine(); line != null; line = requests.readLine()) {
      String[] words = line.split("\t");
      Files.deleteIfExists(java.nio.file.Path.of(words[1]));
      long wall = System.nanoTime();
      long cpu = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
      rewrite(configuration, words);
      cpu = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - cpu;
      wall = System.nanoTime() - wall;
      System.out.println(wall * 1e-9 + " " + cpu * 1e-9 + " 0");
    }
  }

  private static void rewrite(Configuration configuration, String[] words) throws Exception {
    List<String> columns = new ArrayList<>(List.of(words).subList(2, words.length));
    Map<ColumnPath, ColumnEncryptionProperties> properties = new HashMap<>();
    for (String column : columns) {
      ColumnPath path = ColumnPath.fromDotString(column);
      properties.put(path, ColumnEncryptionProperties.builder(path).withKey(KEY).build());
    }
    RewriteOptions options =
        new RewriteOptions.Builder(configuration, new Path(words[0]), new Path(words[1]))
            .encrypt(columns)
            .encryptionProperties(
                FileEncryptionProperties.builder(KEY)
                    .withEncryptedColumns(properties)
                    .build())
            .build();
    try (ParquetRewriter rewriter = new ParquetRewriter(options)) {
      rewriter.processBlocks();
    }
  }
}
