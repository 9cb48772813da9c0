// The Bloom filters of whole files.
#include <iostream>
#include <memory>

#include <parquet/bloom_filter_reader.h>
#include <parquet/encryption/encryption.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

#include "sha256.h"
#include "vector_filters.h"
#include "vector_keys.h"

namespace {

using parquet::FileDecryptionProperties;

// A file's filters, read with keys of one kind.
class Reading {
 public:
  Reading(const Request& request, std::shared_ptr<FileDecryptionProperties> keys,
          std::shared_ptr<KeyTools> tools)
      : request_(request), keys_(std::move(keys)), tools_(std::move(tools)) {}

  string Answer() {
    try {
      ReadAll();
    } catch (const std::exception& error) {
      Refuse(error, "footer");
    }
    Reply reply(refusal_.empty() ? "read" : refusal_);
    reply.With("filters", found_).With("answers", Answers());
    if (!refusal_.empty()) reply.With("at", at_);
    return reply;
  }

 private:
  void ReadAll() {
    auto properties = parquet::default_reader_properties();
    if (keys_) properties.file_decryption_properties(keys_);
    auto file = parquet::ParquetFileReader::OpenFile(request_.Text("path"), false, properties);
    auto metadata = file->metadata();
    for (int group = 0; group < metadata->num_row_groups(); ++group) {
      for (int column = 0; column < metadata->num_columns(); ++column) {
        Read(*file, group, column);
      }
    }
  }

  void Read(parquet::ParquetFileReader& file, int group, int column) {
    auto descriptor = file.metadata()->schema()->Column(column);
    string place = std::to_string(group) + ":" + descriptor->path()->ToDotString();
    if (tools_) tools_->Forget();
    try {
      auto filters = file.GetBloomFilterReader().RowGroup(group);
      auto filter = filters ? filters->GetColumnBloomFilter(column) : nullptr;
      if (!filter) return;
      bool encrypted =
          file.metadata()->RowGroup(group)->ColumnChunk(column)->crypto_metadata() != nullptr;
      string bitset = BitsetOf(*filter);
      found_ += place + (encrypted ? ":encrypted:" : ":plain:") + std::to_string(bitset.size()) +
                ":" + Hex(sha256::Digest(bitset)) + ",";
      filters_[place] = {std::move(filter), parquet::TypeToString(descriptor->physical_type()),
                         descriptor->type_length()};
    } catch (const std::exception& error) {
      Refuse(error, place);
    }
  }

  // The first refusal is the answer; the other filters are still read.
  void Refuse(const std::exception& error, const string& place) {
    std::cerr << place << ": " << ClassName(error) << ": " << error.what() << std::endl;
    if (!refusal_.empty()) return;
    refusal_ = Outcome(error);
    at_ = place;
  }

  // Arrow C++ has one class for nearly all refusals: the rest is in the messages. As in the layer
  // "modules", a wrong length of a module is a failed authentication.
  string Outcome(const std::exception& error) const {
    if (!dynamic_cast<const parquet::ParquetException*>(&error)) return "error";
    if ((tools_ && tools_->has_refused()) ||
        dynamic_cast<const parquet::HiddenColumnException*>(&error) ||
        dynamic_cast<const parquet::KeyAccessDeniedException*>(&error)) {
      return "key_unavailable";
    }
    string message = error.what();
    for (const auto& [outcome, part] : kMessages) {
      if (message.find(part) != string::npos) return outcome;
    }
    return "malformed";
  }

  string Answers() const {
    string out;
    for (const string& probe : request_.List("probes")) {
      size_t end = probe.rfind(':');
      auto found = filters_.find(probe.substr(0, end));
      if (found == filters_.end()) {
        out += "unknown,";
        continue;
      }
      const auto& [filter, type, length] = found->second;
      string plain = Unhex(probe.substr(end + 1));
      bool answer = filter->FindHash(HashPlain(*filter, type, plain, length));
      out += answer ? "true," : "false,";
    }
    return out;
  }

  struct Found {
    std::unique_ptr<parquet::BloomFilter> filter;
    string type;
    int length;
  };

  static const std::vector<std::pair<string, string>> kMessages;

  const Request& request_;
  std::shared_ptr<FileDecryptionProperties> keys_;
  std::shared_ptr<KeyTools> tools_;
  std::map<string, Found> filters_;
  string found_, refusal_, at_;
};

const std::vector<std::pair<string, string>> Reading::kMessages = {
    {"authentication_failed", "Failed decryption finalization"},
    {"authentication_failed", "signature verification failed"},
    {"authentication_failed", "AAD Prefix in file and in properties is not the same"},
    {"authentication_failed", "Invalid footer encryption signature"},
    {"authentication_failed", "Serialized ciphertext length"},
    {"authentication_failed", "Written ciphertext length"},
    {"authentication_failed", "Ciphertext length"},
    {"authentication_failed", "Ciphertext buffer length"},
    {"authentication_failed", "Plaintext buffer length"},
    {"authentication_failed", "Bloom filter header ciphertext length overflows"},
    {"authentication_failed", "Bloom filter length less than encrypted bloom filter header length"},
    {"key_unavailable", "Wrong key length: 0"},  // no key at all
    {"key_unavailable", "no decryption found in reader's properties"},
    {"key_unavailable", "FileDecryption is not setup correctly"},
    {"key_unavailable", "Column is noted as encrypted but no file decryptor"},
    {"key_unavailable", "No footer key or key retriever"},
    {"key_unavailable", "not stored in file and not supplied in decryption properties"},
    {"unsupported", "Unsupported"},
    {"unsupported", "Given length of bitset is illegal"},
};

// Without a footer key no signature can be verified, and Arrow C++ wants to be told.
std::shared_ptr<FileDecryptionProperties> DataKeys(const Request& request) {
  FileDecryptionProperties::Builder builder;
  if (request.Has("footer_key")) {
    builder.footer_key(Secret(request.Bytes("footer_key")));
  } else {
    builder.disable_footer_signature_verification();
  }
  if (request.Has("aad_prefix")) builder.aad_prefix(request.Bytes("aad_prefix"));
  if (request.Has("column_keys")) {
    parquet::ColumnPathToDecryptionPropertiesMap columns;
    for (const auto& [path, key] : request.Map("column_keys")) {
      columns[path] =
          parquet::ColumnDecryptionProperties::Builder(path).key(Secret(key))->build();
    }
    builder.column_keys(columns);
  }
  return builder.build();
}

string WithMasterKeys(const Request& request) {
  auto tools = std::make_shared<KeyTools>(request, request.Text("path"));
  auto keys = FileDecryptionProperties::Builder().key_retriever(tools)->build();
  return Reading(request, keys, tools).Answer();
}

bool IsRead(const string& answer) { return answer.rfind("read\t", 0) == 0; }

}  // namespace

// With data keys, with master keys, or with both, one after the other: they must agree.
string ReadFile(const Request& request) {
  bool tools = request.Has("master_keys");
  if (!request.Has("footer_key") && !request.Has("column_keys")) {
    return tools ? WithMasterKeys(request) : Reading(request, nullptr, nullptr).Answer();
  }
  string answer = Reading(request, DataKeys(request), nullptr).Answer();
  string other = tools ? WithMasterKeys(request) : answer;
  if (other == answer) return answer;
  std::cerr << "with data keys: " << answer << "\nwith master keys: " << other << std::endl;
  if (IsRead(answer) || IsRead(other)) {
    return Reply("error").With("message", "data keys and master keys give different filters");
  }
  return answer;  // both refuse
}
