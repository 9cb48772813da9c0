import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.List;
import org.apache.parquet.column.values.bloomfilter.BlockSplitBloomFilter;
import org.apache.parquet.column.values.bloomfilter.BloomFilter;
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName;

/** Hashes, blocks, bitsets and their sizes. */
final class VectorFilters {
  private VectorFilters() {}

  static String hash(VectorRequest request) {
    BloomFilter filter = new BlockSplitBloomFilter(BlockSplitBloomFilter.LOWER_BOUND_BYTES);
    try {
      long hash = filter.hash(typed(request, request.bytes("plain")));
      return VectorAdapter.reply("hashed", "hash", VectorAdapter.HEX.toHexDigits(hash));
    } catch (RuntimeException e) {
      if (e.getClass() == RuntimeException.class && e.getMessage().contains("Not supported type")) {
        return "unsupported_type";
      }
      throw e;
    }
  }

  /** The value that parquet-java hashes: an Integer, a Binary... but never bytes of a type. */
  static Object typed(VectorRequest request, byte[] plain) {
    String name = request.text("physical_type");
    PrimitiveTypeName type =
        name.equals("BYTE_ARRAY") ? PrimitiveTypeName.BINARY : PrimitiveTypeName.valueOf(name);
    if (plain.length != width(type, request, plain.length)) {
      throw new VectorAdapter.Skip("parquet-java hashes typed values, which have no wrong length");
    }
    return PeerValues.plain(type, plain);
  }

  static int width(PrimitiveTypeName type, VectorRequest request, int any) {
    switch (type) {
      case BOOLEAN: return 1;
      case INT32: case FLOAT: return 4;
      case INT64: case DOUBLE: return 8;
      case INT96: return 12;
      case FIXED_LEN_BYTE_ARRAY:
        return request.has("type_length") ? request.number("type_length") : any;
      default: return any;
    }
  }

  static byte[] bitset(BloomFilter filter) throws IOException {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    filter.writeTo(out);
    return out.toByteArray();
  }

  static String mask(VectorRequest request) throws IOException {
    return inserted(new byte[32], request);
  }

  static String insert(VectorRequest request) throws IOException {
    return inserted(request.bytes("block"), request);
  }

  private static String inserted(byte[] block, VectorRequest request) throws IOException {
    BloomFilter filter = new BlockSplitBloomFilter(block);
    filter.insertHash(request.hash());
    return VectorAdapter.reply("computed", "block", bitset(filter));
  }

  /** The index is where the one block is that a hash changes. */
  static String index(VectorRequest request) throws IOException {
    BloomFilter filter = empty(Math.multiplyExact(request.number("num_blocks"), 32));
    filter.insertHash(request.hash());
    byte[] bitset = bitset(filter);
    int i = 0;
    while (bitset[i] == 0) {
      i++;
    }
    return VectorAdapter.reply("computed", "index", i / 32);
  }

  /**
   * A filter of a size. The constructor that makes empty filters takes the next power of two
   * instead, and never refuses; filters of other numbers of blocks are those that it reads.
   */
  static BloomFilter empty(int numBytes) {
    BloomFilter filter = new BlockSplitBloomFilter(numBytes);
    if (filter.getBitsetSize() == numBytes) {
      return filter;
    }
    if (numBytes % 32 == 0 && numBytes > 0 && numBytes < filter.getBitsetSize()) {
      return new BlockSplitBloomFilter(new byte[numBytes]);
    }
    throw new VectorAdapter.Skip("parquet-java refuses no size: it takes " + filter.getBitsetSize()
        + " bytes for " + numBytes);
  }

  static String present(VectorRequest request) {
    BloomFilter filter = new BlockSplitBloomFilter(request.bytes("block"));
    return filter.findHash(request.hash()) ? "present" : "absent";
  }

  static String build(VectorRequest request) throws IOException {
    BloomFilter filter = empty(request.number("num_bytes"));
    for (String value : request.list("values")) {
      if (!value.equals("null")) {
        filter.insertHash(filter.hash(typed(request, VectorAdapter.HEX.parseHex(value))));
      }
    }
    return VectorAdapter.reply("built", "bitset", bitset(filter));
  }

  static String check(VectorRequest request) {
    BloomFilter filter = new BlockSplitBloomFilter(request.bytes("bitset"));
    StringBuilder answers = new StringBuilder();
    for (String value : request.list("values")) {
      Object typed = typed(request, VectorAdapter.HEX.parseHex(value));
      answers.append(filter.findHash(filter.hash(typed))).append(',');
    }
    return VectorAdapter.reply("checked", "answers", answers);
  }

  static String merge(VectorRequest request) throws IOException {
    List<String> bitsets = request.list("bitsets");
    BloomFilter merged = new BlockSplitBloomFilter(VectorAdapter.HEX.parseHex(bitsets.get(0)));
    for (String other : bitsets.subList(1, bitsets.size())) {
      try {
        merged.merge(new BlockSplitBloomFilter(VectorAdapter.HEX.parseHex(other)));
      } catch (IllegalArgumentException e) {
        return "invalid_size";
      }
    }
    return VectorAdapter.reply("merged", "bitset", bitset(merged));
  }

  /** As its writer does: the optimal number of bits, then the filter of that many bytes. */
  static String blocks(VectorRequest request) {
    if (request.text("power_of_two").equals("false")) {
      throw new VectorAdapter.Skip("parquet-java makes no filters but of powers of two");
    }
    int bits;
    try {
      bits = BlockSplitBloomFilter.optimalNumOfBits(
          Long.parseLong(request.text("ndv")), Double.parseDouble(request.text("fpp")));
    } catch (IllegalArgumentException e) {
      return "invalid_fpp";
    }
    int numBytes = new BlockSplitBloomFilter(bits / 8).getBitsetSize();
    return VectorAdapter.reply("computed", "num_blocks", numBytes / 32);
  }
}
