import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.parquet.hadoop.ParquetFileReader;

/**
 * parquet-java behind the protocol of vectors/README.md: its own code answers, and what it does not
 * have is skipped. An exception that is no refusal becomes the outcome "error", which is none.
 */
public final class VectorAdapter {
  static final HexFormat HEX = HexFormat.of();
  static final VectorWarnings WARNINGS = new VectorWarnings();

  private VectorAdapter() {}

  public static void main(String[] args) throws IOException {
    PrintStream replies = System.out;
    System.setOut(System.err);
    WARNINGS.listen(ParquetFileReader.class);
    BufferedReader requests =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = requests.readLine(); line != null; line = requests.readLine()) {
      replies.write((answer(line) + "\n").getBytes(StandardCharsets.UTF_8));
      replies.flush();
    }
  }

  static String answer(String line) {
    try {
      return answer(new VectorRequest(line));
    } catch (Skip e) {
      return reply("skip", "reason", e.getMessage());
    } catch (Exception | LinkageError | AssertionError | StackOverflowError | OutOfMemoryError e) {
      e.printStackTrace();
      return reply("error", "class", e.getClass().getName(), "message",
          ParquetJavaPeer.story(e).replaceAll("\\s+", " "));
    }
  }

  static String answer(VectorRequest request) throws Exception {
    switch (request.operation) {
      case "xxh64 hash": return VectorFilters.hash(request);
      case "blocks mask": return VectorFilters.mask(request);
      case "blocks index": return VectorFilters.index(request);
      case "blocks insert": return VectorFilters.insert(request);
      case "blocks check": return VectorFilters.present(request);
      case "bitsets build": return VectorFilters.build(request);
      case "bitsets check": return VectorFilters.check(request);
      case "fold-merge fold": throw new Skip("parquet-java does not fold");
      case "fold-merge merge": return VectorFilters.merge(request);
      case "sizing fpp": throw new Skip("parquet-java computes no false positive probability");
      case "sizing blocks": return VectorFilters.blocks(request);
      case "headers encode": return VectorHeaders.encode(request);
      case "headers decode": return VectorHeaders.decode(request.bytes("data"));
      case "footers revealed": throw new Skip("parquet-java does not audit footers");
      case "aad build": return VectorCrypto.aad(request);
      case "modules encrypt": return VectorCrypto.encrypt(request);
      case "modules decrypt": return VectorCrypto.decrypt(request);
      case "modules sign": return VectorCrypto.sign(request);
      case "modules verify": return VectorCrypto.verify(request);
      case "key-material unwrap": return VectorCrypto.unwrap(request);
      case "files read": return VectorFiles.read(request);
      case "index lookup": throw new Skip("parquet-java has no index of data sets");
      // no skip: a slip in a name must not pass for something that parquet-java lacks
      default: throw new IllegalArgumentException("no operation " + request.operation);
    }
  }

  /** Names and values by turns; bytes become hex. */
  static String reply(String outcome, Object... fields) {
    StringBuilder line = new StringBuilder(outcome);
    for (int i = 0; i < fields.length; i += 2) {
      Object value = fields[i + 1];
      line.append('\t').append(fields[i]).append('=')
          .append(value instanceof byte[] ? HEX.formatHex((byte[]) value) : value);
    }
    return line.toString();
  }

  /** What parquet-java does not have. */
  static final class Skip extends RuntimeException {
    Skip(String reason) {
      super(reason);
    }
  }
}
