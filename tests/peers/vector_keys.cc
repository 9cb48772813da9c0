// Key material.
#include <arrow/filesystem/localfs.h>
#include <parquet/exception.h>

#include "vector_keys.h"

// Exported, but in no header that Arrow C++ installs.
namespace parquet::encryption::internal {

::arrow::util::SecureString DecryptKeyLocally(const string& encrypted,
                                              const ::arrow::util::SecureString& master_key,
                                              const string& aad);

}  // namespace parquet::encryption::internal

namespace {

using namespace parquet::encryption;
using arrow::util::SecureString;

class MemoryKms : public KmsClient {
 public:
  MemoryKms(std::map<string, string> keys, std::shared_ptr<string> asked)
      : keys_(std::move(keys)), asked_(std::move(asked)) {}

  string WrapKey(const SecureString&, const string&) override {
    throw std::logic_error("nothing is written here");
  }

  SecureString UnwrapKey(const string& wrapped, const string& master_key) override {
    *asked_ = master_key;
    auto found = keys_.find(master_key);
    if (found == keys_.end()) {
      throw parquet::KeyAccessDeniedException("no master key " + master_key);
    }
    return internal::DecryptKeyLocally(wrapped, Secret(found->second), master_key);
  }

 private:
  std::map<string, string> keys_;
  std::shared_ptr<string> asked_;
};

class MemoryKmsFactory : public KmsClientFactory {
 public:
  explicit MemoryKmsFactory(std::shared_ptr<KmsClient> kms) : kms_(std::move(kms)) {}
  std::shared_ptr<KmsClient> CreateKmsClient(const KmsConnectionConfig&) override { return kms_; }

 private:
  std::shared_ptr<KmsClient> kms_;
};

}  // namespace

KeyTools::KeyTools(const Request& request, const string& path)
    : asked_(std::make_shared<string>()) {
  auto kms = std::make_shared<MemoryKms>(request.Map("master_keys"), asked_);
  factory_.RegisterKmsClientFactory(std::make_shared<MemoryKmsFactory>(kms));
  KmsConnectionConfig config;  // in a file the footer key's material says this, and only that
  config.kms_instance_id = KmsClient::kKmsInstanceIdDefault;
  config.kms_instance_url = KmsClient::kKmsInstanceUrlDefault;
  properties_ = factory_.GetFileDecryptionProperties(
      config, DecryptionConfiguration(), path, std::make_shared<arrow::fs::LocalFileSystem>());
}

SecureString KeyTools::GetKey(const string& key_metadata) {
  try {
    return properties_->key_retriever()->GetKey(key_metadata);
  } catch (const std::exception&) {
    has_refused_ = true;
    throw;
  }
}

// Messages do not tell what failed, but when it did: before or after the key server was asked.
string UnwrapKey(const Request& request) {
  KeyTools tools(request, "/no folder/no file");
  try {
    auto key = tools.GetKey(request.Bytes("key_metadata"));
    return Reply("unwrapped").With("data_key", Hex(string(key.as_view())))
        .With("master_key", tools.master_key());
  } catch (const parquet::KeyAccessDeniedException&) {
    return Reply("key_not_found");
  } catch (const parquet::ParquetException& error) {
    if (string(error.what()).find("/no folder/") != string::npos) return Reply("external");
    return Reply(tools.has_asked() ? "unwrap_failed" : "malformed");
  }
}
