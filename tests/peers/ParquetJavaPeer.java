import com.fasterxml.jackson.core.json.JsonReadFeature;
import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Paths;
import java.util.List;
import org.apache.parquet.ParquetReadOptions;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.column.page.PageReadStore;
import org.apache.parquet.column.values.bloomfilter.BlockSplitBloomFilter;
import org.apache.parquet.column.values.bloomfilter.BloomFilter;
import org.apache.parquet.conf.PlainParquetConfiguration;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.InternalFileDecryptor;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.SimpleGroup;
import org.apache.parquet.example.data.simple.convert.GroupRecordConverter;
import org.apache.parquet.filter2.compat.FilterCompat;
import org.apache.parquet.filter2.compat.RowGroupFilter;
import org.apache.parquet.filter2.predicate.FilterPredicate;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.hadoop.metadata.ColumnPath;
import org.apache.parquet.io.ColumnIOFactory;
import org.apache.parquet.io.LocalInputFile;
import org.apache.parquet.io.RecordReader;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName;
import org.apache.parquet.schema.Type;

/**
 * parquet-java behind a pipe: one JSON request a line on stdin, one JSON reply a line on stdout.
 *
 * <p>Binary values are base64 strings everywhere. A numeric value may also be a base64 string:
 * then it is the value's plain encoding, which carries NaN bit patterns exactly.
 */
public final class ParquetJavaPeer {
  static final ObjectMapper JSON = JsonMapper.builder()
      .enable(JsonReadFeature.ALLOW_NON_NUMERIC_NUMBERS)
      .disable(JsonWriteFeature.WRITE_NAN_AS_STRINGS)
      .build();
  static final JsonNodeFactory NODES = JsonNodeFactory.instance;

  private ParquetJavaPeer() {}

  public static void main(String[] args) throws IOException {
    PrintStream replies = System.out;
    System.setOut(System.err);
    BufferedReader requests =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = requests.readLine(); line != null; line = requests.readLine()) {
      replies.write(JSON.writeValueAsBytes(reply(line)));
      replies.write('\n');
      replies.flush();
    }
  }

  static JsonNode reply(String line) {
    try {
      return answer(JSON.readTree(line));
    } catch (Exception | LinkageError | AssertionError e) {
      return NODES.objectNode().put("error", e.getClass().getName()).put("message", story(e));
    }
  }

  /** The messages of the exception and of everything that caused it. */
  static String story(Throwable error) {
    StringBuilder text = new StringBuilder(String.valueOf(error.getMessage()));
    for (Throwable t = error.getCause(); t != null; t = t.getCause()) {
      text.append(" | caused by ").append(t);
    }
    return text.toString();
  }

  static JsonNode answer(JsonNode request) throws IOException {
    String op = request.get("op").textValue();
    if (op.equals("write")) {
      return PeerWriting.write(request);
    }
    if (op.equals("hash")) {
      return hash(request);
    }
    if (op.equals("data_keys")) {
      return dataKeys(request);
    }
    if (op.equals("filtered")) {
      return PeerPages.filtered(request);
    }
    try (ParquetFileReader reader = open(request)) {
      switch (op) {
        case "read": return read(reader, request);
        case "filters": return filters(reader, request);
        case "probe": return probe(reader, request);
        case "row_groups_for": return rowGroupsFor(reader, request);
        case "footer": return footer(reader);
        case "page_indexes": return PeerPages.indexes(reader);
        default: throw new IllegalArgumentException("no operation " + op);
      }
    }
  }

  static ParquetFileReader open(JsonNode request) throws IOException {
    String path = request.get("path").textValue();
    return open(path, PeerKeys.decryption(request.path("keys"), path));
  }

  static ParquetFileReader open(String path, FileDecryptionProperties keys) throws IOException {
    // Hadoop's configuration would parse its files of defaults each time.
    ParquetReadOptions options = ParquetReadOptions.builder(new PlainParquetConfiguration())
        .withDecryption(keys)
        .build();
    return ParquetFileReader.open(new LocalInputFile(Paths.get(path)), options);
  }

  /** The pairs of key metadata and data key that reading every column chunk's metadata needs. */
  static JsonNode dataKeys(JsonNode request) throws IOException {
    String path = request.get("path").textValue();
    ArrayNode pairs = NODES.arrayNode();
    try (ParquetFileReader reader =
        open(path, PeerKeys.recording(request.get("keys"), path, pairs))) {
      footer(reader);
    }
    return pairs;
  }

  static JsonNode read(ParquetFileReader reader, JsonNode request) throws IOException {
    MessageType schema = projection(reader.getFileMetaData().getSchema(), request.path("columns"));
    reader.setRequestedSchema(schema);
    ObjectNode out = NODES.objectNode();
    ArrayNode rows = out.putArray("rows");
    ArrayNode groups = out.putArray("row_groups");
    for (PageReadStore pages = reader.readNextRowGroup(); pages != null;
        pages = reader.readNextRowGroup()) {
      RecordReader<Group> records = new ColumnIOFactory().getColumnIO(schema)
          .getRecordReader(pages, new GroupRecordConverter(schema));
      groups.add(pages.getRowCount());
      for (long i = 0; i < pages.getRowCount(); i++) {
        rows.add(PeerValues.row((SimpleGroup) records.read()));
      }
    }
    return out;
  }

  /** The schema with only the named top-level fields, or all of them where no name is given. */
  static MessageType projection(MessageType schema, JsonNode names) {
    if (!names.isArray()) {
      return schema;
    }
    Type[] fields = new Type[names.size()];
    for (int i = 0; i < fields.length; i++) {
      fields[i] = schema.getType(names.get(i).textValue());
    }
    return new MessageType(schema.getName(), fields);
  }

  static JsonNode filters(ParquetFileReader reader, JsonNode request) throws IOException {
    ArrayNode out = NODES.arrayNode();
    for (BlockMetaData block : reader.getRowGroups()) {
      for (ColumnChunkMetaData chunk : block.getColumns()) {
        String column = chunk.getPath().toDotString();
        if (!asked(request.path("columns"), column)) {
          continue;
        }
        BloomFilter filter = reader.readBloomFilter(chunk);
        if (filter != null) {
          ByteArrayOutputStream bitset = new ByteArrayOutputStream();
          filter.writeTo(bitset);
          out.addObject()
              .put("row_group", reader.getRowGroups().indexOf(block))
              .put("column", column)
              .put("offset", chunk.getBloomFilterOffset())
              .put("length", chunk.getBloomFilterLength())
              .put("num_bytes", filter.getBitsetSize())
              .put("bitset", bitset.toByteArray());
        }
      }
    }
    return out;
  }

  static boolean asked(JsonNode columns, String column) {
    if (!columns.isArray()) {
      return true;
    }
    for (JsonNode name : columns) {
      if (name.textValue().equals(column)) {
        return true;
      }
    }
    return false;
  }

  static JsonNode probe(ParquetFileReader reader, JsonNode request) throws IOException {
    ColumnDescriptor column = column(reader, request);
    ArrayNode out = NODES.arrayNode();
    for (BlockMetaData block : reader.getRowGroups()) {
      BloomFilter filter = reader.readBloomFilter(chunk(block, column));
      ArrayNode answers = filter == null ? null : NODES.arrayNode();
      if (filter != null) {
        for (JsonNode value : request.get("values")) {
          Object typed = PeerValues.typed(column.getPrimitiveType().getPrimitiveTypeName(), value);
          answers.add(filter.findHash(filter.hash(typed)));
        }
      }
      out.add(answers);
    }
    return out;
  }

  static ColumnDescriptor column(ParquetFileReader reader, JsonNode request) {
    String dotted = request.get("column").textValue();
    for (ColumnDescriptor column : reader.getFileMetaData().getSchema().getColumns()) {
      if (String.join(".", column.getPath()).equals(dotted)) {
        return column;
      }
    }
    throw new IllegalArgumentException("no column " + dotted);
  }

  static ColumnChunkMetaData chunk(BlockMetaData block, ColumnDescriptor column) {
    for (ColumnChunkMetaData chunk : block.getColumns()) {
      if (chunk.getPath().equals(ColumnPath.get(column.getPath()))) {
        return chunk;
      }
    }
    throw new IllegalArgumentException("no chunk of " + column);
  }

  static JsonNode rowGroupsFor(ParquetFileReader reader, JsonNode request) {
    ColumnDescriptor column = column(reader, request);
    PrimitiveTypeName type = column.getPrimitiveType().getPrimitiveTypeName();
    FilterPredicate predicate = PeerValues.equalTo(
        request.get("column").textValue(), type, PeerValues.typed(type, request.get("value")));
    List<BlockMetaData> kept = RowGroupFilter.filterRowGroups(
        List.of(RowGroupFilter.FilterLevel.BLOOMFILTER), FilterCompat.get(predicate),
        reader.getRowGroups(), reader);
    ArrayNode out = NODES.arrayNode();
    kept.forEach(block -> out.add(reader.getRowGroups().indexOf(block)));
    return out;
  }

  static JsonNode footer(ParquetFileReader reader) {
    ObjectNode out = NODES.objectNode()
        .put("encryption", reader.getFileMetaData().getEncryptionType().name())
        .put("schema", reader.getFileMetaData().getSchema().toString())
        .put("created_by", reader.getFileMetaData().getCreatedBy());
    ArrayNode columns = out.putArray("columns");
    for (BlockMetaData block : reader.getRowGroups()) {
      for (ColumnChunkMetaData chunk : block.getColumns()) {
        ObjectNode record = columns.addObject()
            .put("row_group", reader.getRowGroups().indexOf(block))
            .put("column", chunk.getPath().toDotString());
        describe(chunk, reader.getFileMetaData().getFileDecryptor(), record);
      }
    }
    return out;
  }

  /** A chunk whose key is missing is encrypted, and has the error instead of the filter's place. */
  static void describe(
      ColumnChunkMetaData chunk, InternalFileDecryptor decryptor, ObjectNode record) {
    try {
      record.put("bloom_offset", chunk.getBloomFilterOffset())
          .put("bloom_length", chunk.getBloomFilterLength());
      boolean plain = decryptor == null || decryptor.plaintextFile();
      record.put("encrypted", chunk.isEncrypted()
          || (!plain && decryptor.getColumnSetup(chunk.getPath()).isEncrypted()));
    } catch (RuntimeException e) {
      record.put("encrypted", true).put("error", e.getClass().getName());
    }
  }

  static JsonNode hash(JsonNode request) {
    PrimitiveTypeName type = PrimitiveTypeName.valueOf(request.get("type").textValue());
    BloomFilter filter = new BlockSplitBloomFilter(BlockSplitBloomFilter.LOWER_BOUND_BYTES);
    ArrayNode out = NODES.arrayNode();
    for (JsonNode value : request.get("values")) {
      out.add(filter.hash(PeerValues.typed(type, value)));
    }
    return out;
  }
}
