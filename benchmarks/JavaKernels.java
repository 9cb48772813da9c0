import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.parquet.column.values.bloomfilter.BlockSplitBloomFilter;
import org.apache.parquet.io.api.Binary;

/** parquet-java's Bloom filters at bulk work: requests and replies as in arrow_kernels.cc. */
public class JavaKernels {
  private static final Map<String, long[]> LONGS = new HashMap<>();
  private static final Map<String, Binary[]> STRINGS = new HashMap<>();
  private static final Map<String, BlockSplitBloomFilter> FILTERS = new HashMap<>();

  public static void main(String[] args) throws IOException {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      try {
        System.out.println(answer(line.split(" ")));
      } catch (Exception error) {
        System.out.println("error " + error);
      }
    }
  }

  private static String answer(String[] request) throws IOException {
    switch (request[0]) {
      case "hash":
        return hash(longs(request[1]), Integer.parseInt(request[2]));
      case "hash_binary":
        return hashBinary(strings(request[1], request[2]));
      case "insert":
        return insert(longs(request[1]), Integer.parseInt(request[2]));
      case "check":
        return check(longs(request[1]), filter(request[3], Integer.parseInt(request[2])));
      default:
        throw new IllegalArgumentException("no such work: " + request[0]);
    }
  }

  private static String hash(long[] values, int repeats) {
    BlockSplitBloomFilter filter = new BlockSplitBloomFilter(32);
    long[] out = new long[values.length];
    String times = timed(() -> {
      for (int round = 0; round < repeats; round++) {
        for (int i = 0; i < values.length; i++) {
          out[i] = filter.hash(values[i]);
        }
      }
    });
    return times + digest(out);
  }

  private static String hashBinary(Binary[] values) {
    BlockSplitBloomFilter filter = new BlockSplitBloomFilter(32);
    long[] out = new long[values.length];
    String times = timed(() -> {
      for (int i = 0; i < values.length; i++) {
        out[i] = filter.hash(values[i]);
      }
    });
    return times + digest(out);
  }

  private static String insert(long[] values, int bytes) throws IOException {
    BlockSplitBloomFilter filter = new BlockSplitBloomFilter(bytes);
    String times = timed(() -> {
      for (long value : values) {
        filter.insertHash(filter.hash(value));
      }
    });
    ByteArrayOutputStream out = new ByteArrayOutputStream(bytes);
    filter.writeTo(out);
    long[] words = new long[bytes / 8];
    ByteBuffer.wrap(out.toByteArray()).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer().get(words);
    return times + digest(words);
  }

  private static String check(long[] hashes, BlockSplitBloomFilter filter) {
    boolean[] out = new boolean[hashes.length];
    String times = timed(() -> {
      for (int i = 0; i < hashes.length; i++) {
        out[i] = filter.findHash(hashes[i]);
      }
    });
    long sum = 0;
    for (int i = 0; i < out.length; i++) {
      sum += out[i] ? 2L * i + 1 : 0;
    }
    return times + Long.toUnsignedString(sum);
  }

  private static BlockSplitBloomFilter filter(String inserted, int bytes) throws IOException {
    BlockSplitBloomFilter filter = FILTERS.get(inserted + " " + bytes);
    if (filter == null) {
      filter = new BlockSplitBloomFilter(bytes);
      for (long hash : longs(inserted)) {
        filter.insertHash(hash);
      }
      FILTERS.put(inserted + " " + bytes, filter);
    }
    return filter;
  }

  private static String timed(Runnable work) {
    long wall = System.nanoTime();
    long cpu = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    work.run();
    cpu = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - cpu;
    wall = System.nanoTime() - wall;
    return wall * 1e-9 + " " + cpu * 1e-9 + " ";
  }

  private static String digest(long[] words) {
    long sum = 0;
    for (int i = 0; i < words.length; i++) {
      sum += (2L * i + 1) * words[i];
    }
    return Long.toUnsignedString(sum);
  }

  private static long[] longs(String path) throws IOException {
    long[] values = LONGS.get(path);
    if (values == null) {
      ByteBuffer bytes = read(path);
      values = new long[bytes.remaining() / 8];
      bytes.asLongBuffer().get(values);
      LONGS.put(path, values);
    }
    return values;
  }

  private static Binary[] strings(String offsetsPath, String dataPath) throws IOException {
    Binary[] values = STRINGS.get(offsetsPath);
    if (values == null) {
      long[] offsets = longs(offsetsPath);
      byte[] data = new byte[(int) offsets[offsets.length - 1]];
      read(dataPath).get(data);
      values = new Binary[offsets.length - 1];
      for (int i = 0; i < values.length; i++) {
        values[i] = Binary.fromConstantByteArray(
            data, (int) offsets[i], (int) (offsets[i + 1] - offsets[i]));
      }
      STRINGS.put(offsetsPath, values);
    }
    return values;
  }

  private static ByteBuffer read(String path) throws IOException {
    try (FileChannel channel = FileChannel.open(Path.of(path))) {
      return channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size())
          .order(ByteOrder.LITTLE_ENDIAN);
    }
  }
}
