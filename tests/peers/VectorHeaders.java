import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.column.values.bloomfilter.BlockSplitBloomFilter;
import org.apache.parquet.column.values.bloomfilter.BloomFilter;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.SimpleGroup;
import org.apache.parquet.format.Util;
import org.apache.parquet.format.converter.ParquetMetadataConverter;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.ParquetFileWriter;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.example.ExampleParquetWriter;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.io.LocalOutputFile;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.MessageTypeParser;

/** Headers; read as those of a file whose only filter stands directly before the footer. */
final class VectorHeaders {
  private static final MessageType SCHEMA =
      MessageTypeParser.parseMessageType("message m { required int32 a; }");

  private VectorHeaders() {}

  static String encode(VectorRequest request) throws IOException {
    BloomFilter filter = new BlockSplitBloomFilter(new byte[request.number("num_bytes")]);
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    Util.writeBloomFilterHeader(ParquetMetadataConverter.toBloomFilterHeader(filter), out);
    return VectorAdapter.reply("encoded", "header", out.toByteArray());
  }

  static String decode(byte[] data) throws IOException {
    Path path = Files.createTempFile("header", ".parquet");
    try {
      write(path);
      byte[] file = Files.readAllBytes(path);
      int offset;
      int end;
      try (ParquetFileReader reader = ParquetJavaPeer.open(path.toString(), null)) {
        ColumnChunkMetaData chunk = chunk(reader);
        offset = Math.toIntExact(chunk.getBloomFilterOffset());
        end = offset + chunk.getBloomFilterLength();
      }
      byte[] filter = Arrays.copyOf(data, data.length + missing(data));
      try (var out = Files.newOutputStream(path)) {
        out.write(file, 0, offset);
        out.write(filter);
        out.write(file, end, file.length - end);
      }
      return read(path, data, filter.length);
    } finally {
      Files.delete(path);
    }
  }

  static void write(Path path) throws IOException {
    Group row = new SimpleGroup(SCHEMA);
    row.add("a", 1);
    try (ParquetWriter<Group> writer = ExampleParquetWriter.builder(new LocalOutputFile(path))
        .withType(SCHEMA)
        .withConf(new Configuration(false))
        .withWriteMode(ParquetFileWriter.Mode.OVERWRITE)
        .withBloomFilterEnabled("a", true)
        .withBloomFilterNDV("a", 1L)
        .build()) {
      writer.write(row);
    }
  }

  static ColumnChunkMetaData chunk(ParquetFileReader reader) {
    return reader.getRowGroups().get(0).getColumns().get(0);
  }

  /** How many bytes of the bitset that a header speaks of are not there. */
  static int missing(byte[] data) {
    ByteArrayInputStream stream = new ByteArrayInputStream(data);
    try {
      int numBytes = Util.readBloomFilterHeader(stream).getNumBytes();
      boolean possible = numBytes > 0 && numBytes <= BlockSplitBloomFilter.UPPER_BOUND_BYTES;
      return possible ? Math.max(0, numBytes - stream.available()) : 0;
    } catch (IOException e) {
      return 0;
    }
  }

  static String read(Path path, byte[] data, int length) throws IOException {
    VectorAdapter.WARNINGS.clear();
    try (ParquetFileReader reader = ParquetJavaPeer.open(path.toString(), null)) {
      ColumnChunkMetaData chunk = chunk(reader);
      chunk.setBloomFilterLength(length);
      BloomFilter filter = reader.readBloomFilter(chunk);
      if (filter == null) {
        return VectorAdapter.WARNINGS.outcome();
      }
      ByteArrayInputStream stream = new ByteArrayInputStream(data);
      Util.readBloomFilterHeader(stream);
      return VectorAdapter.reply("decoded", "num_bytes", filter.getBitsetSize(),
          "header_size", data.length - stream.available());
    }
  }
}
