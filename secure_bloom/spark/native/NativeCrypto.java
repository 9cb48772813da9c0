package secure_bloom.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.crypto.ColumnEncryptionProperties;
import org.apache.parquet.crypto.DecryptionPropertiesFactory;
import org.apache.parquet.crypto.EncryptionPropertiesFactory;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.FileEncryptionProperties;
import org.apache.parquet.crypto.ParquetCipher;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.crypto.keytools.KeyToolkit;
import org.apache.parquet.hadoop.api.WriteSupport;
import org.apache.parquet.hadoop.metadata.ColumnPath;
import org.apache.parquet.schema.MessageType;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaSparkContext;

/**
 * Passes the keys in a job's configuration to parquet-java.
 *
 * Compiled at run time by Janino, which knows no lambdas, makes no bridge methods and infers no
 * types: hence the raw types and the casts.
 */
public final class NativeCrypto
    implements EncryptionPropertiesFactory, DecryptionPropertiesFactory {
  public static final String WRITE = "secure_bloom.native.write";
  static final String SESSION_PLAINTEXT = "secure_bloom.native.plaintext"; // of a session
  static final String PLAINTEXT = "plaintext"; // of a write
  public static final String POLICY = "spark.secure_bloom.native.policy"; // of a session
  static final String FILTER_ENABLED = "parquet.bloom.filter.enabled";
  private static final SecureRandom RANDOM = new SecureRandom();

  /** For each file that is written: new data keys, wrapped with the key-encryption keys. */
  @Override
  public FileEncryptionProperties getFileEncryptionProperties(
      Configuration conf, Path file, WriteSupport.WriteContext context) {
    if (DeltaTables.isCheckpoint(file, context.getSchema())) {
      return null;
    }
    String sealed = conf.get(WRITE);
    JsonNode plan = sealed == null ? null : Sealed.open(conf, WRITE, sealed);
    Map columns = plan == null ? new HashMap() : masterKeys(conf, plan, context.getSchema(), file);
    Sensitive.check(context, plan, columns);
    checkPolicy(conf, plan, columns, context.getSchema(), file);
    if (plan == null) {
      if (!conf.getBoolean(SESSION_PLAINTEXT, true) && !conf.getBoolean(PLAINTEXT, false)) {
        throw new ParquetCryptoRuntimeException("no encryption options reached Spark's "
            + "writer, and nothing was written. Spark drops the options of insertInto, "
            + "of saveAsTable with an existing table, and before 4.2 of streams: set those of "
            + "native.write_options for the session, with spark.conf.set. To write without "
            + "encryption, set option " + PLAINTEXT + " to true");
      }
      return null;
    }
    DeltaTables.check(conf, file, columns);
    checkFilters(conf, plan, context.getSchema());
    if (plan.has("policy") && columns.isEmpty() && !needsFooter(plan)) {
      throw new ParquetCryptoRuntimeException("nothing was written: the policy requires no "
          + "encryption of this file, so options of this policy would not encrypt any column. To "
          + "write without encryption, leave out the options, and set option " + PLAINTEXT
          + " to true");
    }
    int numBytes = plan.get("data_key_bytes").asInt();
    byte[] footerKey = newKey(numBytes);
    FileEncryptionProperties.Builder builder = FileEncryptionProperties.builder(footerKey)
        .withFooterKeyMetadata(material(plan, plan.get("footer").asInt(), footerKey))
        .withAlgorithm(ParquetCipher.valueOf(plan.get("algorithm").asText()));
    if (plan.get("plaintext_footer").asBoolean()) {
      builder.withPlaintextFooter();
    }
    if (plan.has("columns") || (plan.has("policy") && !columns.isEmpty())) {
      Map properties = new HashMap();
      for (Iterator i = columns.entrySet().iterator(); i.hasNext();) {
        Map.Entry column = (Map.Entry) i.next();
        byte[] key = newKey(numBytes);
        byte[] metadata = material(plan, ((Integer) column.getValue()).intValue(), key);
        ColumnPath path = (ColumnPath) column.getKey();
        properties.put(path, ColumnEncryptionProperties.builder(path)
            .withKey(key).withKeyMetaData(metadata).build());
      }
      builder.withEncryptedColumns(properties);
    }
    return builder.build();
  }

  /** Decrypts whatever the keys of the read can decrypt; plaintext files are read unchanged. */
  @Override
  public FileDecryptionProperties getFileDecryptionProperties(Configuration conf, Path file) {
    String sealed = conf.get(Keys.READ);
    return sealed == null ? null : new Keys(Keys.open(conf), conf, file, null).properties();
  }

  /** The key that seals what is for this application; its other half stays in the configuration. */
  public String publicKey(Configuration conf) throws GeneralSecurityException {
    return Sealed.publicKey(conf);
  }

  /** See {@link Collector}. Lists are passed from and to Python as text, one line per entry. */
  public String collect(JavaSparkContext spark, Configuration conf, String files, int tasks) {
    List paths = Arrays.asList(files.split("\n"));
    List found = spark.parallelize(paths, tasks).mapPartitions(new Collector(conf)).collect();
    return String.join("\n", found);
  }

  public String join(String[] lines) {
    return String.join("\n", Arrays.asList(lines));
  }

  /** The leaf columns of a file that are encrypted, each with the number of its key. */
  private static Map masterKeys(Configuration conf, JsonNode plan, MessageType schema,
      Path file) {
    Map found = new HashMap();
    if (plan.has("policy")) {
      DeltaTables.checkNames(conf);
      Map demanded = new Policies(plan.get("policy"), file).demanded(schema);
      for (Iterator i = demanded.entrySet().iterator(); i.hasNext();) {
        Map.Entry column = (Map.Entry) i.next();
        found.put(column.getKey(), number(plan, ((String[]) column.getValue())[1]));
      }
      return found;
    }
    if (!plan.has("columns")) {
      for (Iterator i = schema.getColumns().iterator(); i.hasNext();) {
        ColumnPath path = ColumnPath.get(((ColumnDescriptor) i.next()).getPath());
        found.put(path, Integer.valueOf(plan.get("footer").asInt()));
      }
      return found;
    }
    for (Iterator i = plan.get("columns").properties().iterator(); i.hasNext();) {
      Map.Entry asked = (Map.Entry) i.next();
      List leaves = leaves(schema, (String) asked.getKey());
      if (leaves.isEmpty()) {
        throw new ParquetCryptoRuntimeException("column " + asked.getKey() + " should be "
            + "encrypted, but is not in the file: there is no such column, or it is in "
            + "partitionBy, which writes its values into folder names");
      }
      Integer number = Integer.valueOf(((JsonNode) asked.getValue()).asInt());
      for (Iterator j = leaves.iterator(); j.hasNext();) {
        ColumnPath leaf = (ColumnPath) j.next();
        Integer other = (Integer) found.put(leaf, number);
        if (other != null && !other.equals(number)) {
          throw new ParquetCryptoRuntimeException("column " + leaf.toDotString()
              + " has two keys, its own and that of a group that it is in: remove one of them");
        }
      }
    }
    return found;
  }

  /** The number of a master key in a plan; null: that of the footer. */
  private static Integer number(JsonNode plan, String name) {
    int found = plan.get("footer").asInt();
    for (int i = 0; name != null && i < plan.get("keys").size(); i++) {
      found = kek(plan, i).get("name").asText().equals(name) ? i : found;
    }
    return Integer.valueOf(found);
  }

  private static boolean needsFooter(JsonNode plan) {
    return plan.get("policy").get("encrypted_footer").asBoolean();
  }

  /**
   * The policy of the session. Options of a write replace settings in its configuration, but not
   * those that Spark sends to tasks, which begin with "spark.".
   */
  private static String policy(Configuration conf) {
    TaskContext task = TaskContext.get();
    String bound = task == null ? null : task.getLocalProperty(POLICY);
    String found = conf.getRaw(POLICY);
    if (bound != null && found != null && !found.equals(bound)) {
      throw new ParquetCryptoRuntimeException("nothing was written: option " + POLICY + " of this "
          + "write is not the policy of its session, which a write cannot replace");
    }
    return bound == null ? found : bound;
  }

  /** The options of a write do not weaken the policy. {@link BoundOptions} are about this class. */
  private static void checkPolicy(Configuration conf, JsonNode plan, Map columns,
      MessageType schema, Path file) {
    String policy = policy(conf);
    boolean isRequired = plan != null && plan.has("required");
    if (policy == null && !isRequired) {
      return;
    }
    DeltaTables.checkNames(conf);
    Map names = new HashMap();
    for (Iterator i = columns.entrySet().iterator(); i.hasNext();) {
      Map.Entry column = (Map.Entry) i.next();
      int number = ((Integer) column.getValue()).intValue();
      names.put(column.getKey(), kek(plan, number).get("name").asText());
    }
    if (policy != null) {
      new Policies(Sealed.parse(policy), file).check(schema, names, plan);
    }
    if (isRequired) {
      new Policies(plan.get("required"), file).check(schema, names, plan);
    }
  }

  /** The leaf columns with this dotted path, or below it. */
  static List leaves(MessageType schema, String path) {
    List found = new ArrayList();
    for (Iterator i = schema.getColumns().iterator(); i.hasNext();) {
      ColumnPath leaf = ColumnPath.get(((ColumnDescriptor) i.next()).getPath());
      if (leaf.toDotString().equals(path) || leaf.toDotString().startsWith(path + ".")) {
        found.add(leaf);
      }
    }
    return found;
  }

  /** parquet-java ignores filter options whose column does not exist. */
  private static void checkFilters(Configuration conf, JsonNode plan, MessageType schema) {
    for (Iterator i = plan.get("bloom_filters").elements(); i.hasNext();) {
      String path = ((JsonNode) i.next()).asText();
      ColumnPath column = ColumnPath.fromDotString(path);
      boolean found = false;
      for (Iterator j = leaves(schema, path).iterator(); j.hasNext();) {
        found |= j.next().equals(column);
      }
      if (!found || !conf.getBoolean(FILTER_ENABLED + "#" + path, false)) {
        throw new ParquetCryptoRuntimeException("column " + path + " should have a Bloom filter, "
            + (found ? "but its options did not arrive; Spark converts those of tables to lower "
                + "case, so set them for the session, with spark.conf.set"
                : "but is not in the file"));
      }
    }
  }

  static JsonNode kek(JsonNode plan, int number) {
    return (JsonNode) plan.get("keys").get(number);
  }

  private static byte[] newKey(int numBytes) {
    byte[] key = new byte[numBytes];
    RANDOM.nextBytes(key);
    return key;
  }

  /** Key metadata: the key material that Python has prepared, with the wrapped data key in it. */
  private static byte[] material(JsonNode plan, int number, byte[] dataKey) {
    JsonNode kek = kek(plan, number);
    Base64.Decoder base64 = Base64.getDecoder();
    String wrapped = KeyToolkit.encryptKeyLocally(
        dataKey, base64.decode(kek.get("kek").asText()), base64.decode(kek.get("kek_id").asText()));
    String text = kek.get("before").asText() + wrapped + kek.get("after").asText();
    return text.getBytes(StandardCharsets.UTF_8);
  }
}

/** Columns whose Spark metadata names a master key: they are encrypted with it, or not written. */
final class Sensitive {
  private static final String SCHEMA = "org.apache.spark.sql.parquet.row.metadata";
  private static final String KEY = "secure_bloom.key";

  static void check(WriteSupport.WriteContext context, JsonNode plan, Map columns) {
    String schema = (String) context.getExtraMetaData().get(SCHEMA);
    if (schema != null && schema.contains(KEY)) {
      Map names = new HashMap();
      for (Iterator i = columns.entrySet().iterator(); i.hasNext();) {
        Map.Entry column = (Map.Entry) i.next();
        int number = ((Integer) column.getValue()).intValue();
        names.put(column.getKey(), NativeCrypto.kek(plan, number).get("name").asText());
      }
      check(Sealed.parse(schema), "", context.getSchema(), names);
    }
  }

  private static void check(JsonNode type, String path, MessageType schema, Map names) {
    String[] inner = {"elementType", "keyType", "valueType"};
    String[] groups = {".list.element", ".key_value.key", ".key_value.value"};
    for (int i = 0; i < inner.length; i++) {
      if (type.has(inner[i])) {
        check(type.get(inner[i]), path + groups[i], schema, names);
      }
    }
    if (!type.has("fields")) {
      return;
    }
    for (Iterator i = type.get("fields").elements(); i.hasNext();) {
      JsonNode field = (JsonNode) i.next();
      String own = (path.isEmpty() ? "" : path + ".") + field.get("name").asText();
      if (field.get("metadata").has(KEY)) {
        List leaves = NativeCrypto.leaves(schema, own);
        String key = field.get("metadata").get(KEY).asText();
        boolean encrypted = !leaves.isEmpty();
        for (Iterator j = leaves.iterator(); encrypted && j.hasNext();) {
          encrypted = key.equals(names.get(j.next()));
        }
        if (!encrypted) {
          throw new ParquetCryptoRuntimeException("nothing was written: metadata " + KEY
              + " of column " + own + " says that it is encrypted with master key '" + key
              + "', and the options of this write do not. Give it native.write_options(...) "
              + "with that key for the column; to make it public, remove its metadata");
        }
      }
      check(field.get("type"), own, schema, names);
    }
  }
}
