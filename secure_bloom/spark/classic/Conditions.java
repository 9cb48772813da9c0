package secure_parquet;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The conditions of a query on one use of a table, as Spark's optimizer has them.
 *
 * What they mean is decided in Python, by secure_bloom.spark.options.conditions. Values are passed
 * as Spark stores them, because its classes for data sources in Java change some old dates.
 * Compiled by Janino, see DefaultSource.
 */
public final class Conditions {
  private static final int SHOWN = 1000; // characters of a plan
  private final List all = new ArrayList();
  private String checkpoint = "";

  Conditions(scala.collection.Seq expressions) {
    for (Iterator i = CollectionConverters.asJava(expressions).iterator(); i.hasNext();) {
      all.add(described((Expression) i.next()));
    }
  }

  // --- for Python --------------------------------------------------------------------------------

  /** The scan is that of a stream, whose source may keep something there. */
  void setCheckpoint(String folder) {
    checkpoint = folder;
  }

  /** A pickle of a data source with these conditions, made of a pickle without them. */
  byte[] bind(byte[] source) {
    ByteArrayOutputStream out = new ByteArrayOutputStream(source.length + 1000);
    write(out, ascii("\u0080\u0003csecure_bloom.spark.options.conditions\nwith_conditions\n(B"));
    writeSized(out, source);
    writeText(out, json());
    writeText(out, checkpoint);
    write(out, ascii("tR."));
    return out.toByteArray();
  }

  private static void writeText(ByteArrayOutputStream out, String text) {
    write(out, ascii("X"));
    writeSized(out, text.getBytes(StandardCharsets.UTF_8));
  }

  private static byte[] ascii(String text) {
    return text.getBytes(StandardCharsets.ISO_8859_1);
  }

  private static void write(ByteArrayOutputStream out, byte[] bytes) {
    out.write(bytes, 0, bytes.length);
  }

  private static void writeSized(ByteArrayOutputStream out, byte[] bytes) {
    for (int shift = 0; shift < 32; shift += 8) {
      out.write(bytes.length >>> shift);
    }
    write(out, bytes);
  }

  /** What Python receives. */
  public String json() {
    return json(all);
  }

  /** The same of conditions on a write, which Spark passes by its interface for Java. */
  static String json(Predicate[] predicates) {
    List nodes = new ArrayList();
    for (int i = 0; i < predicates.length; i++) {
      nodes.add(described(predicates[i]));
    }
    return json(nodes);
  }

  private static String json(List nodes) {
    try {
      return new ObjectMapper().writeValueAsString(nodes);
    } catch (JsonProcessingException e) {
      throw new IllegalStateException("conditions cannot be passed to secure_parquet", e);
    }
  }

  // --- expressions -------------------------------------------------------------------------------

  private static Map described(Expression expression) {
    Map found = new HashMap();
    List path = path(expression);
    if (path != null) {
      found.put("column", path);
    } else if (expression instanceof Literal) {
      return literal(((Literal) expression).value(), expression.dataType());
    } else {
      found.put("name", name(expression));
      found.put("operands", operands(expression));
    }
    return found;
  }

  private static String name(Expression expression) {
    return expression instanceof BinaryComparison ? ((BinaryComparison) expression).symbol()
        : expression instanceof InSet ? "In" : expression.getClass().getSimpleName();
  }

  /** The names of a column and of fields in it; null if it is something else. */
  private static List path(Expression expression) {
    if (expression instanceof AttributeReference) {
      List found = new ArrayList();
      found.add(((AttributeReference) expression).name());
      return found;
    }
    if (!(expression instanceof GetStructField)) {
      return null;
    }
    GetStructField field = (GetStructField) expression;
    List found = path(field.child());
    if (found != null) {
      found.add(field.childSchema().fields()[field.ordinal()].name());
    }
    return found;
  }

  private static List operands(Expression expression) {
    List found = new ArrayList();
    if (expression instanceof And || expression instanceof Or) {
      Class type = expression.getClass();
      Expression rest = expression; // a chain of them may be long
      while (type.isInstance(rest)) {
        found.add(described((Expression) rest.children().apply(1)));
        rest = (Expression) rest.children().apply(0);
      }
      found.add(described(rest));
      Collections.reverse(found);
      return found;
    }
    for (Iterator i = CollectionConverters.asJava(expression.children()).iterator(); i.hasNext();) {
      found.add(described((Expression) i.next()));
    }
    if (expression instanceof InSet) {
      DataType type = ((InSet) expression).child().dataType();
      for (Iterator i = CollectionConverters.asJava(((InSet) expression).hset()).iterator();
          i.hasNext();) {
        found.add(literal(i.next(), type));
      }
    }
    return found;
  }

  private static Map described(org.apache.spark.sql.connector.expressions.Expression expression) {
    Map found = new HashMap();
    if (expression instanceof NamedReference) {
      found.put("column", Arrays.asList((Object[]) ((NamedReference) expression).fieldNames()));
    } else if (expression instanceof org.apache.spark.sql.connector.expressions.Literal) {
      org.apache.spark.sql.connector.expressions.Literal literal =
          (org.apache.spark.sql.connector.expressions.Literal) expression;
      return literal(literal.value(), literal.dataType());
    } else {
      List operands = new ArrayList();
      for (int i = 0; i < expression.children().length; i++) {
        operands.add(described(expression.children()[i]));
      }
      String name = expression instanceof Predicate ? ((Predicate) expression).name() : "?";
      found.put("name", name.equals("IS_NULL") ? "IsNull" : name);
      found.put("operands", operands);
    }
    return found;
  }

  private static Map literal(Object value, DataType type) {
    Map found = new HashMap();
    found.put("type", type.catalogString());
    found.put("value", plain(value));
    return found;
  }

  /** A value that JSON has: bytes in base64, and text for what JSON would round. */
  private static Object plain(Object value) {
    if (value == null || value instanceof Boolean || value instanceof byte[]
        || value instanceof Byte || value instanceof Short || value instanceof Integer
        || value instanceof Long) {
      return value;
    }
    // Java knows the float that is nearest to its text, Python does not.
    return value instanceof Float ? Double.toString(((Float) value).doubleValue())
        : value.toString();
  }

  // --- for explain(), which shows the values elsewhere -------------------------------------------

  public String toString() {
    StringBuilder text = new StringBuilder();
    showAll(all, ", ", text);
    return "[" + (text.length() < SHOWN ? text.toString() : text.substring(0, SHOWN) + "...") + "]";
  }

  private static void showAll(List nodes, String separator, StringBuilder text) {
    for (int i = 0; i < nodes.size() && text.length() < SHOWN; i++) {
      text.append(i == 0 ? "" : separator);
      show((Map) nodes.get(i), text);
    }
  }

  private static void show(Map node, StringBuilder text) {
    List operands = (List) node.get("operands");
    if (operands == null) {
      List path = (List) node.get("column");
      text.append(path == null ? "?" : String.join(".", path));
      return;
    }
    String name = (String) node.get("name");
    if (name.equals("In")) {
      show((Map) operands.get(0), text);
      text.append(" In (" + (operands.size() - 1) + " values)");
      return;
    }
    boolean isInfix = !Character.isLetter(name.charAt(0)) || name.equals("And")
        || name.equals("Or");
    text.append(isInfix ? "(" : name + "(");
    showAll(operands, isInfix ? " " + name + " " : ", ", text);
    text.append(")");
  }
}
