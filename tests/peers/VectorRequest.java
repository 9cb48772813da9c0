import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** One line of the protocol. */
final class VectorRequest {
  final String operation;
  private final Map<String, String> fields = new HashMap<>();

  VectorRequest(String line) {
    String[] parts = line.split("\t", -1);
    operation = parts[0] + " " + parts[1];
    for (String part : Arrays.asList(parts).subList(2, parts.length)) {
      int end = part.indexOf('=');
      fields.put(part.substring(0, end), part.substring(end + 1));
    }
  }

  boolean has(String name) {
    return fields.containsKey(name);
  }

  String text(String name) {
    if (!has(name)) {
      throw new IllegalArgumentException("the request has no " + name);
    }
    return fields.get(name);
  }

  byte[] bytes(String name) {
    return VectorAdapter.HEX.parseHex(text(name));
  }

  int number(String name) {
    return Integer.parseInt(text(name));
  }

  /** As callers of parquet-java do where a module has no such ordinal. */
  int ordinal(String name) {
    return has(name) ? number(name) : -1;
  }

  long hash() {
    return Long.parseUnsignedLong(text("hash"), 16);
  }

  List<String> list(String name) {
    String[] items = text(name).split(",", -1);
    return Arrays.asList(items).subList(0, items.length - 1);
  }

  ObjectNode keyTools() {
    ObjectNode keys = ParquetJavaPeer.NODES.objectNode();
    keys.set("master_keys", map("master_keys"));
    return keys;
  }

  /** Without a footer key no signature can be verified, and parquet-java wants to be told. */
  ObjectNode dataKeys() {
    ObjectNode keys = ParquetJavaPeer.NODES.objectNode();
    keys.put("verify_footer", has("footer_key"));
    for (String name : List.of("footer_key", "aad_prefix")) {
      if (has(name)) {
        keys.put(name, bytes(name));
      }
    }
    if (has("column_keys")) {
      keys.set("column_keys", map("column_keys"));
    }
    return keys;
  }

  private ObjectNode map(String name) {
    ObjectNode out = ParquetJavaPeer.NODES.objectNode();
    for (String item : list(name)) {
      int end = item.lastIndexOf(':');
      out.put(item.substring(0, end), VectorAdapter.HEX.parseHex(item.substring(end + 1)));
    }
    return out;
  }
}
