import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.BufferUnderflowException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.parquet.column.values.bloomfilter.BloomFilter;
import org.apache.parquet.crypto.KeyAccessDeniedException;
import org.apache.parquet.crypto.TagVerificationException;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName;

/** The Bloom filters of a whole file, read with keys of one kind. */
final class VectorFiles {
  private static final List<Class<?>> DEFECTS = List.of(
      NullPointerException.class, IndexOutOfBoundsException.class, ClassCastException.class,
      NegativeArraySizeException.class, ArithmeticException.class, BufferUnderflowException.class,
      OutOfMemoryError.class);

  private final VectorRequest request;
  private final Map<String, BloomFilter> filters = new HashMap<>();
  private final Map<String, PrimitiveTypeName> types = new HashMap<>();
  private final StringBuilder found = new StringBuilder();
  private ParquetFileReader reader;
  private String refusal;
  private String at;

  private VectorFiles(VectorRequest request) {
    this.request = request;
  }

  /** With data keys, with master keys, or with both, one after the other: they must agree. */
  static String read(VectorRequest request) {
    boolean explicit = request.has("footer_key") || request.has("column_keys");
    boolean tools = request.has("master_keys");
    if (!explicit) {
      return new VectorFiles(request)
          .answer(tools ? request.keyTools() : ParquetJavaPeer.NODES.nullNode());
    }
    String answer = new VectorFiles(request).answer(request.dataKeys());
    String other = tools ? new VectorFiles(request).answer(request.keyTools()) : answer;
    if (other.equals(answer)) {
      return answer;
    }
    System.err.println("with data keys: " + answer + "\nwith master keys: " + other);
    if (answer.startsWith("read\t") || other.startsWith("read\t")) {
      return VectorAdapter.reply(
          "error", "message", "data keys and master keys give different filters");
    }
    return answer; // both refuse
  }

  private String answer(JsonNode keys) {
    String path = request.text("path");
    try (ParquetFileReader opened = ParquetJavaPeer.open(path, PeerKeys.decryption(keys, path))) {
      reader = opened;
      for (int rowGroup = 0; rowGroup < reader.getRowGroups().size(); rowGroup++) {
        for (ColumnChunkMetaData chunk : reader.getRowGroups().get(rowGroup).getColumns()) {
          read(rowGroup, chunk);
        }
      }
    } catch (IOException | RuntimeException | OutOfMemoryError e) {
      refuse(e, "footer");
    }
    return refusal == null
        ? VectorAdapter.reply("read", "filters", found, "answers", answers())
        : VectorAdapter.reply(refusal, "filters", found, "answers", answers(), "at", at);
  }

  private void read(int rowGroup, ColumnChunkMetaData chunk) {
    String place = rowGroup + ":" + chunk.getPath().toDotString();
    VectorAdapter.WARNINGS.clear();
    try {
      BloomFilter filter = reader.readBloomFilter(chunk);
      if (filter != null) {
        add(place, chunk, filter);
      } else if (!VectorAdapter.WARNINGS.isEmpty()) {
        refuse(VectorAdapter.WARNINGS.outcome(), place);
      }
    } catch (IOException | RuntimeException | OutOfMemoryError e) {
      refuse(e, place);
    }
  }

  private void add(String place, ColumnChunkMetaData chunk, BloomFilter filter) throws IOException {
    ObjectNode record = ParquetJavaPeer.NODES.objectNode();
    ParquetJavaPeer.describe(chunk, reader.getFileMetaData().getFileDecryptor(), record);
    filters.put(place, filter);
    types.put(place, chunk.getPrimitiveType().getPrimitiveTypeName());
    found.append(place)
        .append(record.get("encrypted").booleanValue() ? ":encrypted:" : ":plain:")
        .append(filter.getBitsetSize()).append(':')
        .append(sha256(VectorFilters.bitset(filter))).append(',');
  }

  private void refuse(Throwable error, String place) {
    error.printStackTrace();
    refuse(outcome(error), place);
  }

  /** The first refusal is the answer; the other filters are still read. */
  private void refuse(String outcome, String place) {
    if (refusal == null) {
      refusal = outcome;
      at = place;
    }
  }

  /** An exception tells what is refused by where it comes from, and else by its message. */
  static String outcome(Throwable error) {
    if (DEFECTS.stream().anyMatch(type -> type.isInstance(error))) {
      return "error";
    }
    if (thrownIn(error, "org.apache.parquet.crypto.keytools.")
        || VectorCrypto.causedBy(error, KeyAccessDeniedException.class)) {
      return "key_unavailable";
    }
    // not only a tag: as in the layer "modules", a wrong length is a failed authentication
    if (thrownIn(error, "org.apache.parquet.crypto.AesGcmDecryptor")
        || VectorCrypto.causedBy(error, TagVerificationException.class)) {
      return "authentication_failed";
    }
    return told(ParquetJavaPeer.story(error));
  }

  private static boolean thrownIn(Throwable error, String place) {
    return error != null && (thrownIn(error.getCause(), place)
        || Arrays.stream(error.getStackTrace()).anyMatch(f -> f.getClassName().startsWith(place)));
  }

  private static String told(String story) {
    if (story.contains("Unsupported algorithm")) {
      return "unsupported";
    }
    if (story.contains("AAD Prefix in file and in decryption properties is not the same")) {
      return "authentication_failed";
    }
    boolean noKey = story.matches("(?s).*(No keys available|No footer key|key is NULL"
        + "|Null File Decryptor|AAD prefix used for file encryption, but not stored in file).*");
    return noKey ? "key_unavailable" : "malformed";
  }

  private String answers() {
    StringBuilder out = new StringBuilder();
    for (String probe : request.list("probes")) {
      int end = probe.lastIndexOf(':');
      String place = probe.substring(0, end);
      BloomFilter filter = filters.get(place);
      byte[] plain = VectorAdapter.HEX.parseHex(probe.substring(end + 1));
      out.append(filter == null ? "unknown"
          : filter.findHash(filter.hash(PeerValues.plain(types.get(place), plain)))).append(',');
    }
    return out.toString();
  }

  private static String sha256(byte[] bytes) {
    try {
      return VectorAdapter.HEX.formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException(e);
    }
  }
}
