import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.file.Paths;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.column.ParquetProperties.WriterVersion;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.SimpleGroup;
import org.apache.parquet.hadoop.ParquetFileWriter;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.example.ExampleParquetWriter;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.io.LocalOutputFile;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.MessageTypeParser;

/** Files written through the example Group model. */
final class PeerWriting {
  private PeerWriting() {}

  static JsonNode write(JsonNode request) throws IOException {
    String path = request.get("path").textValue();
    MessageType schema = MessageTypeParser.parseMessageType(request.get("schema").textValue());
    JsonNode rows = request.get("rows");
    try (ParquetWriter<Group> writer = writer(request, path, schema)) {
      for (JsonNode row : rows) {
        Group group = new SimpleGroup(schema);
        PeerValues.fill(group, schema, row);
        writer.write(group);
      }
    }
    return ParquetJavaPeer.NODES.objectNode().put("rows", rows.size());
  }

  static ParquetWriter<Group> writer(JsonNode request, String path, MessageType schema)
      throws IOException {
    ExampleParquetWriter.Builder builder =
        ExampleParquetWriter.builder(new LocalOutputFile(Paths.get(path)))
            .withType(schema)
            .withConf(new Configuration(false))
            .withWriteMode(ParquetFileWriter.Mode.OVERWRITE)
            .withValidation(true)
            .withEncryption(PeerKeys.encryption(request.path("keys"), path, schema))
            .withDictionaryEncoding(request.path("dictionary").asBoolean(false))
            .withWriterVersion(
                WriterVersion.fromString("v" + request.path("page_version").asInt(1)))
            .withCompressionCodec(
                CompressionCodecName.valueOf(request.path("codec").asText("UNCOMPRESSED")));
    if (request.hasNonNull("row_group_rows")) {
      builder.withRowGroupRowCountLimit(request.get("row_group_rows").intValue());
    }
    if (request.hasNonNull("page_rows")) {
      builder.withPageRowCountLimit(request.get("page_rows").intValue());
    }
    filters(builder, request);
    return builder.build();
  }

  static void filters(ExampleParquetWriter.Builder builder, JsonNode request) {
    request.path("bloom").properties().forEach(entry -> {
      builder.withBloomFilterEnabled(entry.getKey(), true);
      if (entry.getValue().hasNonNull("ndv")) {
        builder.withBloomFilterNDV(entry.getKey(), entry.getValue().get("ndv").longValue());
      }
      if (entry.getValue().hasNonNull("fpp")) {
        builder.withBloomFilterFPP(entry.getKey(), entry.getValue().get("fpp").doubleValue());
      }
    });
    if (request.hasNonNull("bloom_max_bytes")) {
      builder.withMaxBloomFilterBytes(request.get("bloom_max_bytes").intValue());
    }
    builder.withAdaptiveBloomFilterEnabled(request.path("bloom_adaptive").asBoolean(false));
  }
}
