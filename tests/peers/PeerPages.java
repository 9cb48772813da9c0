import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Paths;
import java.util.List;
import org.apache.parquet.ParquetReadOptions;
import org.apache.parquet.column.page.PageReadStore;
import org.apache.parquet.conf.PlainParquetConfiguration;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.SimpleGroup;
import org.apache.parquet.example.data.simple.convert.GroupRecordConverter;
import org.apache.parquet.filter2.compat.FilterCompat;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.internal.column.columnindex.ColumnIndex;
import org.apache.parquet.internal.column.columnindex.OffsetIndex;
import org.apache.parquet.io.ColumnIOFactory;
import org.apache.parquet.io.LocalInputFile;
import org.apache.parquet.io.RecordReader;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName;

/** Page indexes, and reads that use them. */
final class PeerPages {
  private PeerPages() {}

  /** For each column chunk its pages as the offset index has them, and bounds; null without. */
  static JsonNode indexes(ParquetFileReader reader) throws IOException {
    ArrayNode out = ParquetJavaPeer.NODES.arrayNode();
    for (BlockMetaData block : reader.getRowGroups()) {
      for (ColumnChunkMetaData chunk : block.getColumns()) {
        ObjectNode record = out.addObject()
            .put("row_group", reader.getRowGroups().indexOf(block))
            .put("column", chunk.getPath().toDotString());
        record.set("pages", pages(reader.readOffsetIndex(chunk)));
        record.set("bounds", bounds(reader.readColumnIndex(chunk)));
      }
    }
    return out;
  }

  private static ArrayNode pages(OffsetIndex index) {
    if (index == null) {
      return null;
    }
    ArrayNode out = ParquetJavaPeer.NODES.arrayNode();
    for (int i = 0; i < index.getPageCount(); i++) {
      out.addArray().add(index.getOffset(i)).add(index.getCompressedPageSize(i))
          .add(index.getFirstRowIndex(i));
    }
    return out;
  }

  private static ArrayNode bounds(ColumnIndex index) {
    if (index == null) {
      return null;
    }
    ArrayNode out = ParquetJavaPeer.NODES.arrayNode();
    List<Boolean> nulls = index.getNullPages();
    for (int i = 0; i < nulls.size(); i++) {
      ArrayNode page = out.addArray();
      if (!nulls.get(i)) {
        page.add(bytes(index.getMinValues().get(i))).add(bytes(index.getMaxValues().get(i)));
      }
    }
    return out;
  }

  private static byte[] bytes(ByteBuffer buffer) {
    byte[] out = new byte[buffer.remaining()];
    buffer.duplicate().get(out);
    return out;
  }

  /** The rows of column = value, and how many rows the pages have that were read for it. */
  static JsonNode filtered(JsonNode request) throws IOException {
    String path = request.get("path").textValue();
    PrimitiveTypeName type;
    try (ParquetFileReader reader = ParquetJavaPeer.open(request)) {
      type = ParquetJavaPeer.column(reader, request).getPrimitiveType().getPrimitiveTypeName();
    }
    FilterCompat.Filter filter = FilterCompat.get(PeerValues.equalTo(
        request.get("column").textValue(), type, PeerValues.typed(type, request.get("value"))));
    ParquetReadOptions options = ParquetReadOptions.builder(new PlainParquetConfiguration())
        .withDecryption(PeerKeys.decryption(request.path("keys"), path))
        .useStatsFilter(false).useDictionaryFilter(false).useBloomFilter(false)
        .useColumnIndexFilter(true).withRecordFilter(filter).build();
    try (ParquetFileReader reader =
        ParquetFileReader.open(new LocalInputFile(Paths.get(path)), options)) {
      return read(reader, filter);
    }
  }

  private static JsonNode read(ParquetFileReader reader, FilterCompat.Filter filter)
      throws IOException {
    MessageType schema = reader.getFileMetaData().getSchema();
    ObjectNode out = ParquetJavaPeer.NODES.objectNode();
    ArrayNode rows = out.putArray("rows");
    long count = 0;
    for (PageReadStore pages = reader.readNextFilteredRowGroup(); pages != null;
        pages = reader.readNextFilteredRowGroup()) {
      RecordReader<Group> records = new ColumnIOFactory().getColumnIO(schema)
          .getRecordReader(pages, new GroupRecordConverter(schema), filter);
      for (long i = 0; i < pages.getRowCount(); i++) {
        SimpleGroup row = (SimpleGroup) records.read();
        if (row != null && !records.shouldSkipCurrentRecord()) {
          rows.add(PeerValues.row(row));
        }
      }
      count += pages.getRowCount();
    }
    return out.put("rows_read", count);
  }
}
