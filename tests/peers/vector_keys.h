// Key tools over master keys that come with a request.
#pragma once

#include <exception>
#include <memory>

#include <parquet/encryption/crypto_factory.h>
#include <parquet/encryption/encryption.h>

#include "vector_protocol.h"

// Arrow C++'s key tools as a key retriever, which remembers what happened. The file may have its
// key material beside it.
class KeyTools : public parquet::DecryptionKeyRetriever {
 public:
  KeyTools(const Request& request, const string& path);

  arrow::util::SecureString GetKey(const string& key_metadata) override;

  const string& master_key() const { return *asked_; }
  bool has_asked() const { return !asked_->empty(); }
  bool has_refused() const { return has_refused_; }
  void Forget() { has_refused_ = false; }

 private:
  parquet::encryption::CryptoFactory factory_;
  std::shared_ptr<parquet::FileDecryptionProperties> properties_;
  std::shared_ptr<string> asked_;  // the master key that was asked for last
  bool has_refused_ = false;
};
