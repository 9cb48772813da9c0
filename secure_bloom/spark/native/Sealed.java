package secure_bloom.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.spec.MGF1ParameterSpec;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import javax.crypto.Cipher;
import javax.crypto.spec.OAEPParameterSpec;
import javax.crypto.spec.PSource;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.crypto.keytools.KeyToolkit;

/** What Python has sealed for this application: AES-GCM under a key that RSA-OAEP protects. */
public final class Sealed {
  private static final String PRIVATE_KEY = "secure_bloom.native.secret.key"; // redacted
  private static final String PUBLIC_KEY = "secure_bloom.native.public.key";
  private static final OAEPParameterSpec OAEP = new OAEPParameterSpec(
      "SHA-256", "MGF1", MGF1ParameterSpec.SHA256, PSource.PSpecified.DEFAULT);
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Map OPENED = new LinkedHashMap(); // most recent ones of this process
  private static final int MAX_OPENED = 64;
  private static final int VERSION = 1; // FORMAT_VERSION in Python

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
    String name = option + ' ' + sealed;
    JsonNode opened = (JsonNode) OPENED.get(name);
    if (opened == null) {
      opened = parse(decrypt(conf, option, sealed));
      if (opened.get("version").asInt() != VERSION) {
        throw new ParquetCryptoRuntimeException("option " + option + " was created by another "
            + "version of secure_bloom than that of this Spark application: restart the "
            + "application");
      }
      if (OPENED.size() >= MAX_OPENED) {
        OPENED.remove(OPENED.keySet().iterator().next());
      }
      OPENED.put(name, opened);
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
      String protectedKey = sealed.substring(0, Math.max(dot, 0));
      byte[] key = cipher.doFinal(Base64.getDecoder().decode(protectedKey));
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
    return new ParquetCryptoRuntimeException("option " + option + " was created for another Spark "
        + "application, or changed: recreate the options with secure_bloom.spark.native");
  }

  static String text(JsonNode object, String field) {
    JsonNode value = object.get(field);
    return value == null ? "" : value.asText();
  }

  static JsonNode parse(String json) {
    try {
      return JSON.readTree(json);
    } catch (JsonProcessingException e) {
      throw new ParquetCryptoRuntimeException("this is not valid JSON"); // e would quote it
    }
  }
}
