package secure_bloom.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.SecureRandom;
import java.security.spec.MGF1ParameterSpec;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.crypto.AEADBadTagException;
import javax.crypto.Cipher;
import javax.crypto.spec.OAEPParameterSpec;
import javax.crypto.spec.PSource;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.HadoopReadOptions;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.crypto.ColumnEncryptionProperties;
import org.apache.parquet.crypto.DecryptionKeyRetriever;
import org.apache.parquet.crypto.DecryptionPropertiesFactory;
import org.apache.parquet.crypto.EncryptionPropertiesFactory;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.FileEncryptionProperties;
import org.apache.parquet.crypto.KeyAccessDeniedException;
import org.apache.parquet.crypto.ParquetCipher;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.crypto.keytools.KeyToolkit;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.api.WriteSupport;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.hadoop.metadata.ColumnPath;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.parquet.schema.MessageType;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.util.SerializableConfiguration;

/**
 * Gives the keys that a job's configuration holds to parquet-java.
 *
 * Compiled at run time by Janino, which knows no lambdas, makes no bridge methods and infers no
 * types: hence the raw types and the casts.
 */
public final class NativeCrypto implements EncryptionPropertiesFactory, DecryptionPropertiesFactory {
  static final String WRITE = "secure_bloom.native.write";
  static final String READ = "secure_bloom.native.read";
  static final String SESSION_PLAINTEXT = "secure_bloom.native.plaintext"; // of a session
  static final String PLAINTEXT = "plaintext"; // of a write
  static final String FILTER_ENABLED = "parquet.bloom.filter.enabled";
  private static final SecureRandom RANDOM = new SecureRandom();

  /** For each file that is written: new data keys, wrapped with the key-encryption keys. */
  @Override
  public FileEncryptionProperties getFileEncryptionProperties(
      Configuration conf, Path file, WriteSupport.WriteContext context) {
    String sealed = conf.get(WRITE);
    JsonNode plan = sealed == null ? null : Sealed.open(conf, WRITE, sealed);
    Map columns = plan == null ? new HashMap() : masterKeys(plan, context.getSchema());
    Sensitive.check(context, plan, columns);
    if (plan == null) {
      if (!conf.getBoolean(SESSION_PLAINTEXT, true) && !conf.getBoolean(PLAINTEXT, false)) {
        throw new ParquetCryptoRuntimeException("no encryption has arrived here, and nothing was "
            + "written. Spark drops the options of insertInto, of saveAsTable with a table that "
            + "exists, and before 4.2 of streams: set those of native.write_options for the "
            + "session, with spark.conf.set. To write without encryption, set option " + PLAINTEXT
            + " to true");
      }
      return null;
    }
    checkFilters(conf, plan, context.getSchema());
    int numBytes = plan.get("data_key_bytes").asInt();
    byte[] footerKey = newKey(numBytes);
    FileEncryptionProperties.Builder builder = FileEncryptionProperties.builder(footerKey)
        .withFooterKeyMetadata(material(plan, plan.get("footer").asInt(), footerKey))
        .withAlgorithm(ParquetCipher.valueOf(plan.get("algorithm").asText()));
    if (plan.get("plaintext_footer").asBoolean()) {
      builder.withPlaintextFooter();
    }
    if (plan.has("columns")) {
      Map properties = new HashMap();
      for (Iterator i = columns.entrySet().iterator(); i.hasNext();) {
        Map.Entry column = (Map.Entry) i.next();
        byte[] key = newKey(numBytes);
        byte[] metadata = material(plan, ((Integer) column.getValue()).intValue(), key);
        properties.put(column.getKey(), ColumnEncryptionProperties.builder((ColumnPath) column.getKey())
            .withKey(key).withKeyMetaData(metadata).build());
      }
      builder.withEncryptedColumns(properties);
    }
    return builder.build();
  }

  /** Opens whatever the keys of the read open; files in plaintext are read as they are. */
  @Override
  public FileDecryptionProperties getFileDecryptionProperties(Configuration conf, Path file) {
    String sealed = conf.get(READ);
    if (sealed == null) {
      return null;
    }
    return new Keys(Sealed.open(conf, READ, sealed).get("keys"), conf, file, null).properties();
  }

  /** The key that seals what is for this application; its other half stays in the configuration. */
  public String publicKey(Configuration conf) throws GeneralSecurityException {
    return Sealed.publicKey(conf);
  }

  /** See {@link Collector}. */
  public List collect(JavaSparkContext spark, Configuration conf, List files, int tasks) {
    return spark.parallelize(files, tasks).mapPartitions(new Collector(conf)).collect();
  }

  /** The leaf columns of a file that are encrypted, each with the number of its key. */
  private static Map masterKeys(JsonNode plan, MessageType schema) {
    Map found = new HashMap();
    for (Iterator i = schema.getColumns().iterator(); i.hasNext();) {
      ColumnPath path = ColumnPath.get(((ColumnDescriptor) i.next()).getPath());
      if (!plan.has("columns")) {
        found.put(path, Integer.valueOf(plan.get("footer").asInt()));
      }
    }
    if (!plan.has("columns")) {
      return found;
    }
    for (Iterator i = plan.get("columns").fields(); i.hasNext();) {
      Map.Entry asked = (Map.Entry) i.next();
      List leaves = leaves(schema, (String) asked.getKey());
      if (leaves.isEmpty()) {
        throw new ParquetCryptoRuntimeException("column " + asked.getKey() + " is to be encrypted, "
            + "but is not in the file: there is no such column, or it is in partitionBy, which "
            + "writes its values into the names of folders");
      }
      for (Iterator j = leaves.iterator(); j.hasNext();) {
        found.put(j.next(), Integer.valueOf(((JsonNode) asked.getValue()).asInt()));
      }
    }
    return found;
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

  /** parquet-java passes over options of filters whose column it does not find. */
  private static void checkFilters(Configuration conf, JsonNode plan, MessageType schema) {
    for (Iterator i = plan.get("bloom_filters").elements(); i.hasNext();) {
      String path = ((JsonNode) i.next()).asText();
      ColumnPath column = ColumnPath.fromDotString(path);
      boolean found = false;
      for (Iterator j = leaves(schema, path).iterator(); j.hasNext();) {
        found |= j.next().equals(column);
      }
      if (!found || !conf.getBoolean(FILTER_ENABLED + "#" + path, false)) {
        throw new ParquetCryptoRuntimeException("column " + path + " is to have a Bloom filter, but "
            + (found ? "its options have not arrived; Spark turns those of tables into lower case, "
                + "so set them for the session, with spark.conf.set"
                : "is not in the file"));
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
              + "', and the options of this write do not say so. Give it native.write_options(...) "
              + "with that key for the column; if it is to be public, remove its metadata");
        }
      }
      check(field.get("type"), own, schema, names);
    }
  }
}

/** What Python has sealed for this application: AES-GCM under a key that RSA-OAEP protects. */
final class Sealed {
  private static final String PRIVATE_KEY = "secure_bloom.native.secret.key"; // Spark redacts "secret"
  private static final String PUBLIC_KEY = "secure_bloom.native.public.key";
  private static final OAEPParameterSpec OAEP = new OAEPParameterSpec(
      "SHA-256", "MGF1", MGF1ParameterSpec.SHA256, PSource.PSpecified.DEFAULT);
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Map OPENED = new LinkedHashMap(); // the last ones of this process, by text
  private static final int MAX_OPENED = 64;

  static synchronized String publicKey(Configuration conf) throws GeneralSecurityException {
    if (conf.get(PRIVATE_KEY) == null) {
      KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
      generator.initialize(3072);
      KeyPair pair = generator.generateKeyPair();
      conf.set(PRIVATE_KEY, Base64.getEncoder().encodeToString(pair.getPrivate().getEncoded()));
      conf.set(PUBLIC_KEY, Base64.getEncoder().encodeToString(pair.getPublic().getEncoded()));
    }
    return conf.get(PUBLIC_KEY);
  }

  static synchronized JsonNode open(Configuration conf, String option, String sealed) {
    JsonNode opened = (JsonNode) OPENED.get(sealed);
    if (opened == null) {
      opened = parse(decrypt(conf, option, sealed));
      if (OPENED.size() >= MAX_OPENED) {
        OPENED.remove(OPENED.keySet().iterator().next());
      }
      OPENED.put(sealed, opened);
    }
    return opened;
  }

  private static String decrypt(Configuration conf, String option, String sealed) {
    String privateKey = conf.get(PRIVATE_KEY);
    int dot = sealed.indexOf('.');
    try {
      byte[] encoded = Base64.getDecoder().decode(privateKey == null ? "" : privateKey);
      Cipher cipher = Cipher.getInstance("RSA/ECB/OAEPPadding");
      cipher.init(Cipher.DECRYPT_MODE,
          KeyFactory.getInstance("RSA").generatePrivate(new PKCS8EncodedKeySpec(encoded)), OAEP);
      byte[] key = cipher.doFinal(Base64.getDecoder().decode(sealed.substring(0, Math.max(dot, 0))));
      byte[] opened = KeyToolkit.decryptKeyLocally(
          sealed.substring(dot + 1), key, option.getBytes(StandardCharsets.UTF_8));
      return new String(opened, StandardCharsets.UTF_8);
    } catch (GeneralSecurityException e) {
      throw stale(option);
    } catch (IllegalArgumentException e) {
      throw stale(option);
    } catch (ParquetCryptoRuntimeException e) {
      throw stale(option);
    }
  }

  private static ParquetCryptoRuntimeException stale(String option) {
    return new ParquetCryptoRuntimeException("option " + option + " was made for another Spark "
        + "application, or changed: make the options anew with secure_bloom.spark.native");
  }

  static String text(JsonNode object, String field) {
    JsonNode value = object.get(field);
    return value == null ? "" : value.asText();
  }

  static JsonNode parse(String json) {
    try {
      return JSON.readTree(json);
    } catch (JsonProcessingException e) {
      throw new ParquetCryptoRuntimeException("this is no JSON"); // e would quote it
    }
  }
}

/** The data keys of one file, from its key material and the keys that the KMS has unwrapped. */
final class Keys implements DecryptionKeyRetriever {
  private final JsonNode unwrapped;
  private final Configuration conf;
  private final Path file;
  private final Set wanted; // key material for which no key is there; null: not collected

  Keys(JsonNode unwrapped, Configuration conf, Path file, Set wanted) {
    this.unwrapped = unwrapped;
    this.conf = conf;
    this.file = file;
    this.wanted = wanted;
  }

  FileDecryptionProperties properties() {
    return FileDecryptionProperties.builder().withKeyRetriever(this).withPlaintextFilesAllowed().build();
  }

  @Override
  public byte[] getKey(byte[] metadata) {
    String text = metadata == null ? "" : new String(metadata, StandardCharsets.UTF_8);
    if (!text.startsWith("{")) {
      throw new ParquetCryptoRuntimeException("the key metadata of the file is that of no KMS");
    }
    JsonNode material = Sealed.parse(text);
    if (Sealed.text(material, "internalStorage").equals("false")) {
      text = beside(Sealed.text(material, "keyReference"));
      material = Sealed.parse(text);
    }
    if (!Sealed.text(material, "keyMaterialType").equals("PKMT1")) {
      throw new ParquetCryptoRuntimeException("the key metadata of the file is that of no KMS");
    }
    boolean isDouble = Sealed.text(material, "doubleWrapping").equals("true");
    JsonNode key = unwrapped.get(Sealed.text(material, isDouble ? "wrappedKEK" : "wrappedDEK"));
    if (key == null) {
      if (wanted != null) {
        wanted.add(text);
      }
      throw new KeyAccessDeniedException("the options of this read hold no key for " + file
          + ", which needs master key '" + Sealed.text(material, "masterKeyID") + "': if the file "
          + "is newer than them, call native.read_options again");
    }
    byte[] raw = Base64.getDecoder().decode(key.asText());
    return isDouble ? KeyToolkit.decryptKeyLocally(Sealed.text(material, "wrappedDEK"), raw,
        Base64.getDecoder().decode(Sealed.text(material, "keyEncryptionKeyID"))) : raw;
  }

  /** An entry of the file with key material beside the Parquet file. */
  private String beside(String name) {
    Path path = new Path(file.getParent(), "_KEY_MATERIAL_FOR_" + file.getName() + ".json");
    try {
      InputStream stream = path.getFileSystem(conf).open(path);
      try {
        String text = new String(stream.readAllBytes(), StandardCharsets.UTF_8);
        return Sealed.text(Sealed.parse(text), name);
      } finally {
        stream.close();
      }
    } catch (IOException e) {
      throw new ParquetCryptoRuntimeException("the key material of " + file + " cannot be read: " + path, e);
    }
  }
}

/** On executors: which key material files have that the given keys do not open, as lines of JSON. */
final class Collector implements FlatMapFunction {
  private final SerializableConfiguration conf;

  Collector(Configuration conf) {
    this.conf = new SerializableConfiguration(conf);
  }

  @Override
  public Iterator call(Object files) throws Exception {
    Set lines = new LinkedHashSet();
    ObjectMapper json = new ObjectMapper();
    for (Iterator i = (Iterator) files; i.hasNext();) {
      String name = (String) i.next();
      Path file = new Path(new URI(name));
      Set wanted = new LinkedHashSet();
      ObjectNode line = json.createObjectNode().put("hidden", name);
      try {
        read(file, wanted);
        line = null;
      } catch (IOException e) {
        line.put("error", String.valueOf(e.getMessage())).put("kind", "io");
      } catch (ParquetCryptoRuntimeException e) {
        line.put("error", String.valueOf(e.getMessage())).put("kind",
            isTag(e) ? "tag" : e.getCause() instanceof IOException ? "material" : "keys");
      } catch (RuntimeException e) {
        line.put("error", String.valueOf(e.getMessage())).put("kind", isTag(e) ? "tag" : "format");
      }
      if (line != null) {
        lines.add(line.toString());
      }
      for (Iterator j = wanted.iterator(); j.hasNext();) {
        lines.add(json.createObjectNode().put("material", (String) j.next()).put("file", name).toString());
      }
    }
    return lines.iterator();
  }

  private void read(Path file, Set wanted) throws IOException {
    JsonNode keys = Sealed.open(conf.value(), NativeCrypto.READ, conf.value().get(NativeCrypto.READ)).get("keys");
    FileDecryptionProperties properties = new Keys(keys, conf.value(), file, wanted).properties();
    ParquetFileReader reader = ParquetFileReader.open(HadoopInputFile.fromPath(file, conf.value()),
        HadoopReadOptions.builder(conf.value(), file).withDecryption(properties).build());
    try {
      for (Iterator i = reader.getFooter().getBlocks().iterator(); i.hasNext();) {
        for (Iterator j = ((BlockMetaData) i.next()).getColumns().iterator(); j.hasNext();) {
          try {
            ((ColumnChunkMetaData) j.next()).getTotalSize(); // asks for the column's key
          } catch (ParquetCryptoRuntimeException e) {
            if (isTag(e)) {
              throw e;
            } // else its key is wanted
          }
        }
      }
    } finally {
      reader.close();
    }
  }

  private static boolean isTag(Throwable error) {
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      if (cause instanceof AEADBadTagException) {
        return true;
      }
    }
    return false;
  }
}
