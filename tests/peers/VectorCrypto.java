import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.security.InvalidKeyException;
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.crypto.AesCipher;
import org.apache.parquet.crypto.AesGcmDecryptor;
import org.apache.parquet.crypto.AesGcmEncryptor;
import org.apache.parquet.crypto.AesMode;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.InternalFileDecryptor;
import org.apache.parquet.crypto.KeyAccessDeniedException;
import org.apache.parquet.crypto.ModuleCipherFactory;
import org.apache.parquet.crypto.ModuleCipherFactory.ModuleType;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.crypto.TagVerificationException;
import org.apache.parquet.crypto.keytools.KeyToolkit;
import org.apache.parquet.crypto.keytools.KmsClient;
import org.apache.parquet.format.AesGcmV1;
import org.apache.parquet.format.EncryptionAlgorithm;
import org.apache.parquet.format.converter.ParquetMetadataConverter;

/** AADs, modules and key material. */
final class VectorCrypto {
  private VectorCrypto() {}

  static String aad(VectorRequest request) {
    byte[] fileAad =
        VectorAdapter.HEX.parseHex(request.text("aad_prefix") + request.text("aad_file_unique"));
    ModuleType type = Arrays.stream(ModuleType.values())
        .filter(t -> t.getValue() == request.number("module_type")).findFirst()
        .orElseThrow(() -> new VectorAdapter.Skip("parquet-java has no such module type"));
    try {
      byte[] aad = AesCipher.createModuleAAD(fileAad, type, request.ordinal("row_group"),
          request.ordinal("column"), request.ordinal("page"));
      return VectorAdapter.reply("built", "aad", aad);
    } catch (IllegalArgumentException | ParquetCryptoRuntimeException e) {
      return "invalid_ordinal"; // negative, or beyond a short
    }
  }

  static String encrypt(VectorRequest request) {
    try {
      byte[] module = encryptor(request)
          .encrypt(true, request.bytes("plaintext"), request.bytes("nonce"), request.bytes("aad"));
      return VectorAdapter.reply("encrypted", "module", module);
    } catch (RuntimeException e) {
      return refusedKey(e);
    }
  }

  static AesGcmEncryptor encryptor(VectorRequest request) {
    return (AesGcmEncryptor) ModuleCipherFactory.getEncryptor(AesMode.GCM, request.bytes("key"));
  }

  /** The cipher refuses a length of a key when it is used, and an empty key when it is made. */
  static String refusedKey(RuntimeException e) {
    if (e.getCause() instanceof InvalidKeyException
        || e.getClass() == IllegalArgumentException.class) {
      return "invalid_key";
    }
    throw e;
  }

  /** As a header or a bitset is read: from a stream that begins with the module's length. */
  static String decrypt(VectorRequest request) {
    try {
      AesGcmDecryptor decryptor = (AesGcmDecryptor)
          ModuleCipherFactory.getDecryptor(AesMode.GCM, request.bytes("key"));
      InputStream module = new ByteArrayInputStream(request.bytes("module"));
      byte[] plaintext = decryptor.decrypt(module, request.bytes("aad"));
      return VectorAdapter.reply("decrypted", "plaintext", plaintext);
    } catch (TagVerificationException | IOException e) {
      return "authentication_failed"; // a stream that ends early is a wrong length
    } catch (RuntimeException e) {
      boolean wrongLength = e instanceof ParquetCryptoRuntimeException && e.getCause() == null;
      return wrongLength ? "authentication_failed" : refusedKey(e);
    }
  }

  /** A signature is the nonce and the tag of the encrypted footer. */
  static String sign(VectorRequest request) {
    byte[] encrypted = encryptor(request)
        .encrypt(false, request.bytes("footer"), request.bytes("nonce"), request.bytes("aad"));
    int length = AesCipher.NONCE_LENGTH + AesCipher.GCM_TAG_LENGTH;
    byte[] signature = Arrays.copyOf(encrypted, length);
    System.arraycopy(encrypted, encrypted.length - AesCipher.GCM_TAG_LENGTH,
        signature, AesCipher.NONCE_LENGTH, AesCipher.GCM_TAG_LENGTH);
    return VectorAdapter.reply("signed", "signature", signature);
  }

  /** The check of a plaintext footer, which is private: it gets footer and signature in one. */
  static String verify(VectorRequest request) throws Exception {
    byte[] aad = request.bytes("aad");
    if (aad[aad.length - 1] != ModuleType.Footer.getValue()) {
      throw new VectorAdapter.Skip("parquet-java verifies with the AAD of a footer only");
    }
    InternalFileDecryptor decryptor = new InternalFileDecryptor(
        FileDecryptionProperties.builder().withFooterKey(request.bytes("key")).build());
    AesGcmV1 gcm = new AesGcmV1().setAad_file_unique(Arrays.copyOf(aad, aad.length - 1));
    decryptor.setFileCryptoMetaData(EncryptionAlgorithm.AES_GCM_V1(gcm), false, null);
    byte[] signed = VectorAdapter.HEX.parseHex(request.text("footer") + request.text("signature"));
    Method check = ParquetMetadataConverter.class.getDeclaredMethod(
        "verifyFooterIntegrity", InputStream.class, InternalFileDecryptor.class, int.class);
    check.setAccessible(true);
    InputStream stream = new ByteArrayInputStream(signed);
    // its caller has read the footer: the stream stands at the signature, its mark at the start
    stream.skip(signed.length - AesCipher.NONCE_LENGTH - AesCipher.GCM_TAG_LENGTH);
    return verified(check, stream, decryptor, signed.length);
  }

  static String verified(Method check, Object... arguments) throws Exception {
    try {
      check.invoke(null, arguments);
      return "verified";
    } catch (InvocationTargetException e) {
      if (e.getCause() instanceof TagVerificationException) {
        return "authentication_failed";
      }
      throw e;
    }
  }

  static String unwrap(VectorRequest request) {
    ObjectNode keys = request.keyTools();
    keys.putObject("properties")
        .put(KeyToolkit.KMS_CLIENT_CLASS_PROPERTY_NAME, RecordingKms.class.getName())
        // in a file these stand in the footer key's material only
        .put(KeyToolkit.KMS_INSTANCE_ID_PROPERTY_NAME, KmsClient.KMS_INSTANCE_ID_DEFAULT)
        .put(KeyToolkit.KMS_INSTANCE_URL_PROPERTY_NAME, KmsClient.KMS_INSTANCE_URL_DEFAULT);
    try {
      byte[] key = PeerKeys.decryption(keys, "/no folder/no file").getKeyRetriever()
          .getKey(request.bytes("key_metadata"));
      return VectorAdapter.reply(
          "unwrapped", "data_key", key, "master_key", RecordingKms.asked);
    } catch (KeyAccessDeniedException e) {
      return "key_not_found";
    } catch (ParquetCryptoRuntimeException | IllegalArgumentException e) {
      if (causedBy(e, FileNotFoundException.class)) {
        return "external";
      }
      return whileUnwrapping(e) ? "unwrap_failed" : "malformed";
    }
  }

  static boolean causedBy(Throwable error, Class<?> type) {
    return error != null && (type.isInstance(error) || causedBy(error.getCause(), type));
  }

  /** The classes do not tell it: a wrapped key that is no base64 is an IllegalArgumentException. */
  static boolean whileUnwrapping(Throwable error) {
    return Arrays.stream(error.getStackTrace())
        .anyMatch(frame -> frame.getMethodName().equals("decryptKeyLocally"));
  }

  /** The key server of the other tests; it remembers which master key was asked for. */
  public static final class RecordingKms implements KmsClient {
    static String asked;
    private final KmsClient kms = new PeerKeys.MemoryKms();

    @Override
    public void initialize(Configuration conf, String instanceId, String url, String token) {
      kms.initialize(conf, instanceId, url, token);
    }

    @Override
    public String wrapKey(byte[] key, String masterKeyId) {
      return kms.wrapKey(key, masterKeyId);
    }

    @Override
    public byte[] unwrapKey(String wrapped, String masterKeyId) {
      asked = masterKeyId;
      return kms.unwrapKey(wrapped, masterKeyId);
    }
  }

}
