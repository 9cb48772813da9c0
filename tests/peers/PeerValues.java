import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.SimpleGroup;
import org.apache.parquet.filter2.predicate.FilterApi;
import org.apache.parquet.filter2.predicate.FilterPredicate;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.schema.GroupType;
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName;
import org.apache.parquet.schema.Type;

/** JSON values to and from Parquet's physical types. */
final class PeerValues {
  private PeerValues() {}

  static void fill(Group group, GroupType type, JsonNode row) {
    row.properties().forEach(entry -> {
      int index = type.getFieldIndex(entry.getKey());
      if (type.getType(index).isRepetition(Type.Repetition.REPEATED)) {
        entry.getValue().forEach(item -> add(group, index, type.getType(index), item));
      } else if (!entry.getValue().isNull()) {
        add(group, index, type.getType(index), entry.getValue());
      }
    });
  }

  static void add(Group group, int index, Type type, JsonNode value) {
    if (!type.isPrimitive()) {
      fill(group.addGroup(index), type.asGroupType(), value);
      return;
    }
    PrimitiveTypeName primitive = type.asPrimitiveType().getPrimitiveTypeName();
    Object typed = typed(primitive, value);
    switch (primitive) {
      case BOOLEAN: group.add(index, (boolean) typed); break;
      case INT32: group.add(index, (int) typed); break;
      case INT64: group.add(index, (long) typed); break;
      case FLOAT: group.add(index, (float) typed); break;
      case DOUBLE: group.add(index, (double) typed); break;
      default: group.add(index, (Binary) typed);
    }
  }

  /** The Java value: Boolean, Integer, Long, Float, Double or Binary. */
  static Comparable<?> typed(PrimitiveTypeName type, JsonNode value) {
    if (value.isTextual()) {
      return plain(type, bytes(value));
    }
    switch (type) {
      case BOOLEAN: return value.booleanValue();
      case INT32: return Math.toIntExact(exact(value));
      case INT64: return exact(value);
      case FLOAT: return value.floatValue();
      case DOUBLE: return value.doubleValue();
      default: throw new IllegalArgumentException(type + " needs base64, not " + value);
    }
  }

  static long exact(JsonNode value) {
    if (!value.isIntegralNumber()) {
      throw new IllegalArgumentException("not an integer: " + value);
    }
    return value.bigIntegerValue().longValueExact();
  }

  static Comparable<?> plain(PrimitiveTypeName type, byte[] bytes) {
    ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    switch (type) {
      case BOOLEAN: return buffer.get() != 0;
      case INT32: return buffer.getInt();
      case INT64: return buffer.getLong();
      case FLOAT: return buffer.getFloat();
      case DOUBLE: return buffer.getDouble();
      default: return Binary.fromConstantByteArray(bytes);
    }
  }

  static byte[] bytes(JsonNode base64) {
    try {
      return base64.binaryValue();
    } catch (IOException e) {
      throw new IllegalArgumentException("not base64: " + base64, e);
    }
  }

  /** Every field is there: null where absent, a list where repeated, base64 where binary. */
  static ObjectNode row(SimpleGroup group) {
    ObjectNode out = ParquetJavaPeer.NODES.objectNode();
    for (int i = 0; i < group.getType().getFieldCount(); i++) {
      Type field = group.getType().getType(i);
      int count = group.getFieldRepetitionCount(i);
      if (field.isRepetition(Type.Repetition.REPEATED)) {
        ArrayNode items = out.putArray(field.getName());
        for (int k = 0; k < count; k++) {
          items.add(value(group, i, k));
        }
      } else {
        JsonNode absent = ParquetJavaPeer.NODES.nullNode();
        out.set(field.getName(), count == 0 ? absent : value(group, i, 0));
      }
    }
    return out;
  }

  static JsonNode value(SimpleGroup group, int field, int index) {
    JsonNodeFactory nodes = ParquetJavaPeer.NODES;
    Type type = group.getType().getType(field);
    if (!type.isPrimitive()) {
      return row((SimpleGroup) group.getGroup(field, index));
    }
    switch (type.asPrimitiveType().getPrimitiveTypeName()) {
      case BOOLEAN: return nodes.booleanNode(group.getBoolean(field, index));
      case INT32: return nodes.numberNode(group.getInteger(field, index));
      case INT64: return nodes.numberNode(group.getLong(field, index));
      case FLOAT: return nodes.numberNode((double) group.getFloat(field, index));
      case DOUBLE: return nodes.numberNode(group.getDouble(field, index));
      case INT96: return nodes.binaryNode(group.getInt96(field, index).getBytes());
      default: return nodes.binaryNode(group.getBinary(field, index).getBytes());
    }
  }

  static FilterPredicate equalTo(String column, PrimitiveTypeName type, Object value) {
    switch (type) {
      case BOOLEAN: return FilterApi.eq(FilterApi.booleanColumn(column), (Boolean) value);
      case INT32: return FilterApi.eq(FilterApi.intColumn(column), (Integer) value);
      case INT64: return FilterApi.eq(FilterApi.longColumn(column), (Long) value);
      case FLOAT: return FilterApi.eq(FilterApi.floatColumn(column), (Float) value);
      case DOUBLE: return FilterApi.eq(FilterApi.doubleColumn(column), (Double) value);
      default: return FilterApi.eq(FilterApi.binaryColumn(column), (Binary) value);
    }
  }
}
