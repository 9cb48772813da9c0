package secure_bloom.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.commons.text.similarity.LevenshteinDistance;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.hadoop.metadata.ColumnPath;
import org.apache.parquet.schema.MessageType;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils;

/** What a policy says about the columns of one file. Python has put its rules in order. */
final class Policies {
  private static final JsonNode DEFAULT = Sealed.parse("{\"rule\": \"default = \\\"encrypt\\\"\"}");
  // Where committers put files before their final place.
  private static final Pattern TEMPORARY = Pattern.compile(
      "/_temporary/[^/]+(/_temporary/[^/]+)?|/\\.spark-staging-[^/]+"
      + "|/\\.hive-staging[^/]*(/-ext-[0-9]+)?");
  private final JsonNode policy;
  private final String path;
  private final List rules = new ArrayList(); // those for the path of the file

  Policies(JsonNode policy, Path file) {
    this.policy = policy;
    String authority = file.toUri().getAuthority();
    path = TEMPORARY.matcher((authority == null ? "" : "/" + authority) + file.toUri().getPath())
        .replaceAll("");
    for (Iterator i = policy.get("rules").elements(); i.hasNext();) {
      JsonNode rule = (JsonNode) i.next();
      if (rule.get("path").isNull() || isBelow(rule.get("path").asText())) {
        rules.add(rule);
      }
    }
  }

  private boolean isBelow(String pattern) {
    Pattern compiled = Pattern.compile(pattern, Pattern.DOTALL);
    for (int end = path.indexOf('/', 1); ; end = path.indexOf('/', end + 1)) {
      String folder = end < 0 ? path : path.substring(0, end);
      if (compiled.matcher(folder).matches()) {
        return true;
      }
      if (end < 0) {
        return false;
      }
    }
  }

  /** The leaf columns that must be encrypted: ColumnPath to {rule, name of master key or null}. */
  Map demanded(MessageType schema) {
    Map found = new HashMap();
    for (Iterator i = schema.getColumns().iterator(); i.hasNext();) {
      ColumnPath leaf = ColumnPath.get(((ColumnDescriptor) i.next()).getPath());
      String[] demand = demand(lower(leaf), policy.get("default").asBoolean());
      if (demand != null) {
        found.put(leaf, demand);
      }
    }
    for (Iterator i = rules.iterator(); i.hasNext();) {
      JsonNode rule = (JsonNode) i.next();
      if (rule.get("encrypted").asBoolean() && !rule.get("exact").isNull()) {
        inOtherWords(rule, schema, found);
      }
    }
    return found;
  }

  private String[] demand(String path, boolean byDefault) {
    JsonNode demand = null;
    JsonNode key = null;
    boolean open = false;
    for (Iterator i = rules.iterator(); i.hasNext() && key == null && !open;) {
      JsonNode rule = (JsonNode) i.next();
      if (!applies(rule.get("name").asText(), path)) {
        continue;
      }
      open = !rule.get("encrypted").asBoolean();
      if (!open) {
        demand = demand == null ? rule : demand;
        key = rule.get("key").isNull() ? null : rule;
      }
    }
    if (demand == null && !open && byDefault) {
      demand = DEFAULT;
    }
    if (demand == null) {
      return null;
    }
    String name = demand.get("rule").asText();
    if (key != null && key != demand) {
      name += " and " + key.get("rule").asText();
    }
    return new String[] {name, key == null ? null : key.get("key").asText()};
  }

  private static boolean applies(String pattern, String path) {
    return Pattern.compile("(?:" + pattern + ")(?:\\..*)?", Pattern.DOTALL).matcher(path).matches();
  }

  /** Writers name the groups in lists and maps differently: the rule is for what is there. */
  private static void inOtherWords(JsonNode rule, MessageType schema, Map found) {
    for (Iterator i = replacements(rule, schema).iterator(); i.hasNext();) {
      ColumnPath leaf = (ColumnPath) i.next();
      String[] old = (String[]) found.get(leaf);
      String key = rule.get("key").isNull() ? null : rule.get("key").asText();
      if (old == null || (old[1] == null && key != null)) {
        found.put(leaf, new String[] {rule.get("rule").asText(), key});
      }
    }
  }

  /** The columns that take the place of the part of a list or map that a rule names. */
  private static List replacements(JsonNode rule, MessageType schema) {
    String name = rule.get("exact").asText();
    boolean isPart = false;
    while (name.indexOf('.') > 0 && below(schema, name).isEmpty()) {
      name = name.substring(0, name.lastIndexOf('.'));
      isPart = true;
    }
    List found = new ArrayList();
    for (Iterator i = below(schema, name).iterator(); isPart && i.hasNext();) {
      ColumnPath leaf = (ColumnPath) i.next();
      if (schema.getMaxRepetitionLevel(leaf.toArray()) > 0 || lower(leaf).equals(name)) {
        found.add(leaf);
      }
    }
    return found;
  }

  /** The rules that match no column, as messages show them, with the column that may be meant. */
  List unused(MessageType schema) {
    Map found = new LinkedHashMap(); // the text for each rule; a pattern is in two forms
    Set used = new HashSet();
    for (Iterator i = rules.iterator(); i.hasNext();) {
      JsonNode rule = (JsonNode) i.next();
      String name = rule.get("rule").asText();
      boolean isExact = !rule.get("exact").isNull();
      boolean matches = isExact && rule.get("encrypted").asBoolean()
          && !replacements(rule, schema).isEmpty();
      for (Iterator j = schema.getColumns().iterator(); j.hasNext() && !matches;) {
        ColumnDescriptor leaf = (ColumnDescriptor) j.next();
        matches = applies(rule.get("name").asText(), lower(ColumnPath.get(leaf.getPath())));
      }
      if (matches) {
        used.add(name);
      }
      String similar = isExact ? similar(rule.get("exact").asText(), schema) : null;
      found.put(name, "rule " + name
          + (similar == null ? "" : " (did you mean '" + similar + "'?)"));
    }
    found.keySet().removeAll(used);
    return new ArrayList(found.values());
  }

  private static String similar(String name, MessageType schema) {
    String found = null;
    int best = Math.max(name.length() / 3, 1) + 1;
    for (Iterator i = schema.getColumns().iterator(); i.hasNext();) {
      ColumnPath leaf = ColumnPath.get(((ColumnDescriptor) i.next()).getPath());
      String[] names = {leaf.toDotString(), leaf.toArray()[0]};
      for (int j = 0; j < names.length; j++) {
        int distance = new LevenshteinDistance(Integer.valueOf(best)).apply(
            (CharSequence) name, (CharSequence) folded(names[j])).intValue();
        if (distance >= 0 && distance < best) {
          best = distance;
          found = names[j];
        }
      }
    }
    return found;
  }

  private static List below(MessageType schema, String name) {
    List found = new ArrayList();
    for (Iterator i = schema.getColumns().iterator(); i.hasNext();) {
      ColumnPath leaf = ColumnPath.get(((ColumnDescriptor) i.next()).getPath());
      if (lower(leaf).equals(name) || lower(leaf).startsWith(name + ".")) {
        found.add(leaf);
      }
    }
    return found;
  }

  private static String lower(ColumnPath leaf) {
    return folded(leaf.toDotString());
  }

  /** As in Python; a sigma at the end of a word has a lower case of its own. */
  private static String folded(String name) {
    return name.toLowerCase(Locale.ROOT).replace('\u03c2', '\u03c3');
  }

  /**
   * Refuses a file that would not meet the policy.
   *
   * names are those of the master keys of the encrypted columns; plan is null if the file would be
   * in plaintext.
   */
  void check(MessageType schema, Map names, JsonNode plan) {
    String footer = plan == null ? null
        : ((JsonNode) plan.get("keys").get(plan.get("footer").asInt())).get("name").asText();
    boolean isPlaintextFooter = plan == null || plan.get("plaintext_footer").asBoolean();
    checkFolders();
    Map demanded = demanded(schema);
    List leaves = new ArrayList(demanded.keySet());
    Collections.sort(leaves, new ByName());
    for (Iterator i = leaves.iterator(); i.hasNext();) {
      ColumnPath leaf = (ColumnPath) i.next();
      String[] demand = (String[]) demanded.get(leaf);
      String key = (String) names.get(leaf);
      if (footer == null || key == null) {
        throw refused("column " + leaf.toDotString() + " would be written in plaintext; it must be "
            + "encrypted by the policy's rule " + demand[0]);
      }
      if (demand[1] != null && !demand[1].equals(key)) {
        throw refused("column " + leaf.toDotString() + " would be encrypted with master key '"
            + key + "'; master key '" + demand[1] + "' is required by the policy's rule "
            + demand[0]);
      }
    }
    if (policy.get("encrypted_footer").asBoolean() && isPlaintextFooter) {
      throw refused("the footer would be written in plaintext; the policy requires an encrypted "
          + "one: encrypted_footer = true");
    }
    JsonNode required = policy.get("footer_key");
    if (footer != null && !required.isNull() && !required.asText().equals(footer)) {
      throw refused("the footer would be encrypted with master key '" + footer + "'; master key '"
          + required.asText() + "' is required by footer_key of the policy");
    }
    boolean isDemanding = !demanded.isEmpty() || policy.get("encrypted_footer").asBoolean();
    if (isDemanding && !isPlaintextFooter
        && !plan.get("algorithm").asText().equals("AES_GCM_V1")) {
      throw refused("the algorithm would be " + plan.get("algorithm").asText() + ", which does not "
          + "authenticate pages; under an encrypted footer, readers that enforce the policy refuse "
          + "it: use AES_GCM_V1");
    }
  }

  /** Values of partition columns are in the names of folders. */
  private void checkFolders() {
    String[] parts = path.split("/");
    for (int i = 0; i < parts.length - 1; i++) {
      int end = parts[i].indexOf('=');
      if (end <= 0) {
        continue;
      }
      String name = ExternalCatalogUtils.unescapePathName(parts[i].substring(0, end));
      String[] demand = demand(folded(name), false);
      String rule = demand == null ? ruleBelow(folded(name)) : demand[0];
      if (rule != null) {
        throw refused("values of column " + name + " would be part of folder names; it must be "
            + "encrypted by the policy's rule " + rule + ": partition by another column");
      }
    }
  }

  private String ruleBelow(String name) {
    for (Iterator i = rules.iterator(); i.hasNext();) {
      JsonNode rule = (JsonNode) i.next();
      if (rule.get("encrypted").asBoolean() && rule.get("exact").asText().startsWith(name + ".")) {
        return rule.get("rule").asText();
      }
    }
    return null;
  }

  private static ParquetCryptoRuntimeException refused(String message) {
    return new ParquetCryptoRuntimeException("nothing was written: " + message);
  }
}

final class ByName implements java.util.Comparator {
  public int compare(Object one, Object other) {
    return one.toString().compareTo(other.toString());
  }
}
