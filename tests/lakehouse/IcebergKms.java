import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.Map;
import javax.crypto.Cipher;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.SecretKeySpec;
import org.apache.iceberg.encryption.KeyManagementClient;

/**
 * A KMS for Iceberg with one master key, which a catalog property has in hexadecimal. It wraps keys
 * as secure_bloom.keys.InMemoryKms does: nonce, ciphertext and tag of AES-GCM, with the name of the
 * master key as additional authenticated data.
 */
public class IcebergKms implements KeyManagementClient {
  private static final int NONCE = 12;
  private byte[] masterKey;

  @Override
  public void initialize(Map<String, String> properties) {
    masterKey = HexFormat.of().parseHex(properties.get("tests.master-key"));
  }

  @Override
  public ByteBuffer wrapKey(ByteBuffer key, String name) {
    byte[] nonce = new byte[NONCE];
    new SecureRandom().nextBytes(nonce);
    byte[] plain = new byte[key.remaining()];
    key.duplicate().get(plain);
    byte[] sealed = apply(Cipher.ENCRYPT_MODE, nonce, plain, name);
    return ByteBuffer.allocate(NONCE + sealed.length).put(nonce).put(sealed).flip();
  }

  @Override
  public ByteBuffer unwrapKey(ByteBuffer wrapped, String name) {
    byte[] nonce = new byte[NONCE];
    byte[] sealed = new byte[wrapped.remaining() - NONCE];
    wrapped.duplicate().get(nonce).get(sealed);
    return ByteBuffer.wrap(apply(Cipher.DECRYPT_MODE, nonce, sealed, name));
  }

  private byte[] apply(int mode, byte[] nonce, byte[] data, String name) {
    try {
      Cipher cipher = Cipher.getInstance("AES/GCM/NoPadding");
      cipher.init(mode, new SecretKeySpec(masterKey, "AES"), new GCMParameterSpec(128, nonce));
      cipher.updateAAD(name.getBytes(StandardCharsets.UTF_8));
      return cipher.doFinal(data);
    } catch (GeneralSecurityException error) {
      throw new IllegalStateException("the KMS does not accept this key", error);
    }
  }
}
