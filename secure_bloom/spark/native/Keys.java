package secure_bloom.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.Set;
import javax.crypto.AEADBadTagException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.HadoopReadOptions;
import org.apache.parquet.crypto.DecryptionKeyRetriever;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.KeyAccessDeniedException;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.crypto.keytools.KeyToolkit;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.util.SerializableConfiguration;

/** The data keys of one file, from its key material and the keys that the KMS has unwrapped. */
public final class Keys implements DecryptionKeyRetriever {
  public static final String READ = "secure_bloom.native.read";
  private static final int MAX_BESIDE = 64 * 1024 * 1024; // bytes; a key takes some 400

  private final JsonNode unwrapped;
  private final Configuration conf;
  private final Path file;
  private final Set wanted; // key material without a known key; null: not collected

  static JsonNode open(Configuration conf) {
    return Sealed.open(conf, READ, conf.get(READ)).get("keys");
  }

  Keys(JsonNode unwrapped, Configuration conf, Path file, Set wanted) {
    this.unwrapped = unwrapped;
    this.conf = conf;
    this.file = file;
    this.wanted = wanted;
  }

  FileDecryptionProperties properties() {
    return FileDecryptionProperties.builder()
        .withKeyRetriever(this).withPlaintextFilesAllowed().build();
  }

  @Override
  public byte[] getKey(byte[] metadata) {
    String text = metadata == null ? "" : new String(metadata, StandardCharsets.UTF_8);
    if (!text.startsWith("{")) {
      throw new ParquetCryptoRuntimeException(
          "the key metadata of the file is not KMS key material");
    }
    JsonNode material = Sealed.parse(text);
    if (Sealed.text(material, "internalStorage").equals("false")) {
      text = beside(Sealed.text(material, "keyReference"));
      material = Sealed.parse(text);
    }
    if (!Sealed.text(material, "keyMaterialType").equals("PKMT1")) {
      throw new ParquetCryptoRuntimeException(
          "the key metadata of the file is not KMS key material");
    }
    boolean isDouble = Sealed.text(material, "doubleWrapping").equals("true");
    JsonNode key = unwrapped.get(Sealed.text(material, isDouble ? "wrappedKEK" : "wrappedDEK"));
    if (key == null) {
      if (wanted != null) {
        wanted.add(text);
      }
      throw new KeyAccessDeniedException("the options of this read contain no key for " + file
          + ", which needs master key '" + Sealed.text(material, "masterKeyID") + "': if the file "
          + "is newer than them, call native.read_options again");
    }
    byte[] raw = Base64.getDecoder().decode(key.asText());
    return isDouble ? KeyToolkit.decryptKeyLocally(Sealed.text(material, "wrappedDEK"), raw,
        Base64.getDecoder().decode(Sealed.text(material, "keyEncryptionKeyID"))) : raw;
  }

  /** An entry of the external key material file in the folder of the Parquet file. */
  private String beside(String name) {
    Path path = new Path(file.getParent(), "_KEY_MATERIAL_FOR_" + file.getName() + ".json");
    try {
      InputStream stream = path.getFileSystem(conf).open(path);
      try {
        byte[] content = stream.readNBytes(MAX_BESIDE + 1);
        if (content.length > MAX_BESIDE) {
          throw new ParquetCryptoRuntimeException(
              "the key material of " + file + " is too large");
        }
        String text = new String(content, StandardCharsets.UTF_8);
        return Sealed.text(Sealed.parse(text), name);
      } finally {
        stream.close();
      }
    } catch (IOException e) {
      throw new ParquetCryptoRuntimeException(
          "the key material of " + file + " cannot be read: " + path, e);
    }
  }
}

/** On executors: the key material of files that the given keys do not open, as lines of JSON. */
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
        lines.add(json.createObjectNode()
            .put("material", (String) j.next()).put("file", name).toString());
      }
    }
    return lines.iterator();
  }

  private void read(Path file, Set wanted) throws IOException {
    FileDecryptionProperties properties =
        new Keys(Keys.open(conf.value()), conf.value(), file, wanted).properties();
    ParquetFileReader reader = ParquetFileReader.open(HadoopInputFile.fromPath(file, conf.value()),
        HadoopReadOptions.builder(conf.value(), file).withDecryption(properties).build());
    try {
      for (Iterator i = reader.getFooter().getBlocks().iterator(); i.hasNext();) {
        for (Iterator j = ((BlockMetaData) i.next()).getColumns().iterator(); j.hasNext();) {
          try {
            ((ColumnChunkMetaData) j.next()).getTotalSize(); // requests the column's key
          } catch (ParquetCryptoRuntimeException e) {
            if (isTag(e)) {
              throw e;
            } // otherwise its key is needed
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
