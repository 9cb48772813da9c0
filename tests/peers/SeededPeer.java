import com.fasterxml.jackson.core.JsonProcessingException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Paths;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.Provider;
import java.security.SecureRandomSpi;
import java.security.Security;
import java.util.Arrays;

/**
 * {@link ParquetJavaPeer} whose random bytes depend on nothing but the name of the request's file:
 * writing a file again gives the same keys, nonces and bytes. For test files only.
 */
public final class SeededPeer {
  private SeededPeer() {}

  public static void main(String[] args) throws IOException {
    Security.insertProviderAt(new SeededProvider(), 1);
    PrintStream replies = System.out;
    System.setOut(System.err);
    BufferedReader requests =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = requests.readLine(); line != null; line = requests.readLine()) {
      SeededStream.reset(fileName(line));
      replies.write(ParquetJavaPeer.JSON.writeValueAsBytes(ParquetJavaPeer.reply(line)));
      replies.write('\n');
      replies.flush();
    }
  }

  /** The last component of the request's path, or nothing where a request has no path. */
  static String fileName(String line) throws JsonProcessingException {
    String path = ParquetJavaPeer.JSON.readTree(line).path("path").asText("");
    return path.isEmpty() ? "" : Paths.get(path).getFileName().toString();
  }

  /** First of the providers: each {@code new SecureRandom()} is made by it. */
  static final class SeededProvider extends Provider {
    SeededProvider() {
      super("Seeded", "1", "predictable bytes for test files");
      putService(new Service(this, "SecureRandom", "Seeded", "SeededStream", null, null) {
        @Override
        public Object newInstance(Object parameter) {
          return new SeededStream();
        }
      });
    }
  }

  /**
   * SHA-256 in counter mode. The state is one for all instances: parquet-java has static random
   * generators, which outlive a request.
   */
  static final class SeededStream extends SecureRandomSpi {
    private static byte[] seed = new byte[0];
    private static long counter;
    private static ByteBuffer block = ByteBuffer.allocate(0);

    static synchronized void reset(String name) {
      seed = sha256(name.getBytes(StandardCharsets.UTF_8));
      counter = 0;
      block = ByteBuffer.allocate(0);
    }

    private static synchronized void fill(byte[] bytes) {
      for (int done = 0; done < bytes.length; ) {
        if (!block.hasRemaining()) {
          byte[] next = Arrays.copyOf(seed, seed.length + Long.BYTES);
          ByteBuffer.wrap(next).putLong(seed.length, counter++);
          block = ByteBuffer.wrap(sha256(next));
        }
        int length = Math.min(block.remaining(), bytes.length - done);
        block.get(bytes, done, length);
        done += length;
      }
    }

    private static byte[] sha256(byte[] bytes) {
      try {
        return MessageDigest.getInstance("SHA-256").digest(bytes);
      } catch (NoSuchAlgorithmException e) {
        throw new IllegalStateException(e);
      }
    }

    @Override
    protected void engineSetSeed(byte[] more) {
      // the name alone decides
    }

    @Override
    protected void engineNextBytes(byte[] bytes) {
      fill(bytes);
    }

    @Override
    protected byte[] engineGenerateSeed(int length) {
      byte[] bytes = new byte[length];
      fill(bytes);
      return bytes;
    }
  }
}
