import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.crypto.KeyAccessDeniedException;
import org.apache.parquet.crypto.keytools.KeyToolkit;
import org.apache.parquet.crypto.keytools.KmsClient;

/** Wraps keys in memory, as the benchmark's keyring does: no KMS call costs Spark's writer time. */
public final class BenchmarkKms implements KmsClient {
  private final Map<String, byte[]> keys = new HashMap<>();

  @Override
  public void initialize(
      Configuration configuration, String kmsInstanceId, String kmsInstanceUrl, String accessToken) {
    for (String item : configuration.getTrimmedStrings("benchmark.keys")) {
      String[] nameAndKey = item.split(":");
      keys.put(nameAndKey[0], java.util.HexFormat.of().parseHex(nameAndKey[1]));
    }
  }

  @Override
  public String wrapKey(byte[] keyBytes, String masterKeyIdentifier) {
    byte[] aad = masterKeyIdentifier.getBytes(StandardCharsets.UTF_8);
    return KeyToolkit.encryptKeyLocally(keyBytes, key(masterKeyIdentifier), aad);
  }

  @Override
  public byte[] unwrapKey(String wrappedKey, String masterKeyIdentifier) {
    byte[] aad = masterKeyIdentifier.getBytes(StandardCharsets.UTF_8);
    return KeyToolkit.decryptKeyLocally(wrappedKey, key(masterKeyIdentifier), aad);
  }

  private byte[] key(String name) {
    if (!keys.containsKey(name)) {
      throw new KeyAccessDeniedException(name);
    }
    return keys.get(name);
  }
}
