import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.ColumnDecryptionProperties;
import org.apache.parquet.crypto.ColumnEncryptionProperties;
import org.apache.parquet.crypto.DecryptionKeyRetriever;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.FileEncryptionProperties;
import org.apache.parquet.crypto.KeyAccessDeniedException;
import org.apache.parquet.crypto.ParquetCipher;
import org.apache.parquet.crypto.keytools.KeyToolkit;
import org.apache.parquet.crypto.keytools.KmsClient;
import org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory;
import org.apache.parquet.hadoop.api.WriteSupport;
import org.apache.parquet.hadoop.metadata.ColumnPath;
import org.apache.parquet.schema.MessageType;

/** The "keys" of a request: either the keys themselves, or key tools with master keys. */
final class PeerKeys {
  private PeerKeys() {}

  static FileEncryptionProperties encryption(JsonNode keys, String path, MessageType schema) {
    if (keys.isMissingNode() || keys.isNull()) {
      return null;
    }
    if (keys.has("master_keys")) {
      return new PropertiesDrivenCryptoFactory().getFileEncryptionProperties(
          tools(keys), new Path(path), new WriteSupport.WriteContext(schema, new HashMap<>()));
    }
    FileEncryptionProperties.Builder builder =
        FileEncryptionProperties.builder(PeerValues.bytes(keys.get("footer_key")))
            .withAlgorithm(ParquetCipher.valueOf(keys.path("algorithm").asText("AES_GCM_V1")));
    if (keys.hasNonNull("footer_key_metadata")) {
      builder.withFooterKeyMetadata(PeerValues.bytes(keys.get("footer_key_metadata")));
    }
    if (keys.path("plaintext_footer").asBoolean(false)) {
      builder.withPlaintextFooter();
    }
    if (keys.hasNonNull("aad_prefix")) {
      builder.withAADPrefix(PeerValues.bytes(keys.get("aad_prefix")));
    }
    if (!keys.path("store_aad_prefix").asBoolean(true)) {
      builder.withoutAADPrefixStorage();
    }
    if (!keys.path("column_keys").isEmpty()) {
      builder.withEncryptedColumns(encryptedColumns(keys));
    }
    if (keys.path("complete_columns").asBoolean(false)) {
      builder.withCompleteColumnEncryption();
    }
    return builder.build();
  }

  static Map<ColumnPath, ColumnEncryptionProperties> encryptedColumns(JsonNode keys) {
    Map<ColumnPath, ColumnEncryptionProperties> columns = new HashMap<>();
    keys.get("column_keys").properties().forEach(entry -> {
      ColumnPath path = ColumnPath.fromDotString(entry.getKey());
      ColumnEncryptionProperties.Builder builder = ColumnEncryptionProperties.builder(path);
      if (!entry.getValue().isNull()) {
        builder.withKey(PeerValues.bytes(entry.getValue()));
      }
      JsonNode metadata = keys.path("column_key_metadata").path(entry.getKey());
      if (metadata.isTextual()) {
        builder.withKeyMetaData(PeerValues.bytes(metadata));
      }
      columns.put(path, builder.build());
    });
    return columns;
  }

  static FileDecryptionProperties decryption(JsonNode keys, String path) {
    if (keys.isMissingNode() || keys.isNull()) {
      return null;
    }
    if (keys.has("master_keys")) {
      return new PropertiesDrivenCryptoFactory()
          .getFileDecryptionProperties(tools(keys), new Path(path));
    }
    FileDecryptionProperties.Builder builder = FileDecryptionProperties.builder();
    if (keys.hasNonNull("footer_key")) {
      builder.withFooterKey(PeerValues.bytes(keys.get("footer_key")));
    }
    if (keys.hasNonNull("aad_prefix")) {
      builder.withAADPrefix(PeerValues.bytes(keys.get("aad_prefix")));
    }
    if (!keys.path("by_metadata").isEmpty()) {
      builder.withKeyRetriever(metadata -> retrieve(keys.get("by_metadata"), metadata));
    }
    if (!keys.path("verify_footer").asBoolean(true)) {
      builder.withoutFooterSignatureVerification();
    }
    if (keys.path("allow_plaintext").asBoolean(false)) {
      builder.withPlaintextFilesAllowed();
    }
    Map<ColumnPath, ColumnDecryptionProperties> columns = decryptedColumns(keys);
    return (columns.isEmpty() ? builder : builder.withColumnKeys(columns)).build();
  }

  /** Decryption by key tools that adds each pair of key metadata and data key to the list. */
  static FileDecryptionProperties recording(JsonNode keys, String path, ArrayNode pairs) {
    DecryptionKeyRetriever tools = decryption(keys, path).getKeyRetriever();
    return FileDecryptionProperties.builder()
        .withKeyRetriever(metadata -> {
          byte[] key = tools.getKey(metadata);
          pairs.addArray().add(metadata).add(key);
          return key;
        })
        .build();
  }

  static Map<ColumnPath, ColumnDecryptionProperties> decryptedColumns(JsonNode keys) {
    Map<ColumnPath, ColumnDecryptionProperties> columns = new HashMap<>();
    keys.path("column_keys").properties().forEach(entry -> {
      if (!entry.getValue().isNull()) {
        ColumnPath path = ColumnPath.fromDotString(entry.getKey());
        columns.put(path, ColumnDecryptionProperties.builder(path)
            .withKey(PeerValues.bytes(entry.getValue())).build());
      }
    });
    return columns;
  }

  /** "by_metadata" is a list of pairs: key metadata, key. */
  static byte[] retrieve(JsonNode pairs, byte[] metadata) {
    for (JsonNode pair : pairs) {
      if (Arrays.equals(PeerValues.bytes(pair.get(0)), metadata)) {
        return PeerValues.bytes(pair.get(1));
      }
    }
    throw new KeyAccessDeniedException("no key for this key metadata");
  }

  /** Hadoop settings of the key tools; caches of earlier requests are dropped. */
  static Configuration tools(JsonNode keys) {
    KeyToolkit.removeCacheEntriesForAllTokens();
    Configuration conf = new Configuration(false);
    conf.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem");
    conf.set(KeyToolkit.KMS_CLIENT_CLASS_PROPERTY_NAME, MemoryKms.class.getName());
    keys.path("properties").properties()
        .forEach(entry -> conf.set(entry.getKey(), entry.getValue().asText()));
    conf.set(MemoryKms.MASTER_KEYS, keys.get("master_keys").toString());
    return conf;
  }

  /** A key server whose master keys come with the request. */
  public static final class MemoryKms implements KmsClient {
    static final String MASTER_KEYS = "peer.master.keys";
    private JsonNode masterKeys;

    @Override
    public void initialize(Configuration conf, String instanceId, String url, String token) {
      try {
        masterKeys = ParquetJavaPeer.JSON.readTree(conf.get(MASTER_KEYS));
      } catch (IOException e) {
        throw new IllegalArgumentException("bad master keys", e);
      }
    }

    @Override
    public String wrapKey(byte[] key, String masterKeyId) {
      return KeyToolkit.encryptKeyLocally(key, master(masterKeyId), aad(masterKeyId));
    }

    @Override
    public byte[] unwrapKey(String wrapped, String masterKeyId) {
      return KeyToolkit.decryptKeyLocally(wrapped, master(masterKeyId), aad(masterKeyId));
    }

    private byte[] master(String id) {
      if (!masterKeys.has(id)) {
        throw new KeyAccessDeniedException("no master key " + id);
      }
      return PeerValues.bytes(masterKeys.get(id));
    }

    private static byte[] aad(String id) {
      return id.getBytes(StandardCharsets.UTF_8);
    }
  }
}
