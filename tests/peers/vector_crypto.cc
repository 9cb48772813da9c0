// AADs, modules and signatures.
#include <cstddef>
#include <limits>
#include <memory>
#include <span>

#include <arrow/buffer.h>
#include <parquet/encryption/encryption.h>
#include <parquet/exception.h>
#include <parquet/metadata.h>
#include <parquet/platform.h>

#include "vector_protocol.h"

// Arrow C++ installs no headers of these, but exports them: the signatures are those of its
// symbols.
namespace parquet::encryption {

class AesEncryptor {
 public:
  static std::unique_ptr<AesEncryptor> Make(ParquetCipher::type algorithm, int32_t key_length,
                                            bool metadata, bool write_length);
  ~AesEncryptor();
  int32_t CiphertextLength(int64_t plaintext_length) const;
  int32_t SignedFooterEncrypt(std::span<const uint8_t> footer, std::span<const uint8_t> key,
                              std::span<const uint8_t> aad, std::span<const uint8_t> nonce,
                              std::span<uint8_t> encrypted);

 private:
  class AesEncryptorImpl;
  std::unique_ptr<AesEncryptorImpl> impl_;
};

class AesDecryptor {
 public:
  static std::unique_ptr<AesDecryptor> Make(ParquetCipher::type algorithm, int32_t key_length,
                                            bool metadata);
  ~AesDecryptor();
  int32_t PlaintextLength(int32_t ciphertext_length) const;
  int32_t Decrypt(std::span<const uint8_t> ciphertext, std::span<const uint8_t> key,
                  std::span<const uint8_t> aad, std::span<uint8_t> plaintext);

 private:
  class AesDecryptorImpl;
  std::unique_ptr<AesDecryptorImpl> impl_;
};

string CreateModuleAad(const string& file_aad, int8_t module_type, int16_t row_group,
                       int16_t column, int32_t page);

}  // namespace parquet::encryption

namespace parquet {

class InternalFileDecryptor {
 public:
  InternalFileDecryptor(std::shared_ptr<FileDecryptionProperties> properties,
                        const string& file_aad, ParquetCipher::type algorithm,
                        const string& footer_key_metadata, ::arrow::MemoryPool* pool);

 private:
  // its members are not known here; room for them, and no destructor that could be called
  alignas(std::max_align_t) char members_[4096];
};

}  // namespace parquet

namespace {

using parquet::ParquetCipher;
using parquet::ParquetException;
using parquet::encryption::AesDecryptor;
using parquet::encryption::AesEncryptor;

constexpr int kSignature = 12 + 16;  // nonce and tag

std::span<const uint8_t> Span(const string& bytes) { return parquet::str2span(bytes); }

// The verification is private: an explicit instantiation may name it.
using Verification = bool(std::span<const uint8_t>, std::span<const uint8_t>,
                          parquet::InternalFileDecryptor*);
template <Verification* Function>
struct Private {
  friend bool Verify(std::span<const uint8_t> footer, std::span<const uint8_t> signature,
                     parquet::InternalFileDecryptor* decryptor) {
    return Function(footer, signature, decryptor);
  }
};
bool Verify(std::span<const uint8_t> footer, std::span<const uint8_t> signature,
            parquet::InternalFileDecryptor* decryptor);
template struct Private<&parquet::FileMetaData::VerifySignature>;

bool IsWrongKey(const ParquetException& error) {
  return string(error.what()).find("Wrong key length") != string::npos;
}

template <typename T>
T Ordinal(const Request& request, const char* name) {
  int64_t value = request.Has(name) ? request.Integer(name) : -1;  // as its callers do
  if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max()) {
    throw Skip("an ordinal of Arrow C++ cannot be " + std::to_string(value));
  }
  return static_cast<T>(value);
}

// The one encryption that takes a nonce; for AES-GCM it is the same as that of modules.
string Encrypted(const Request& request, const string& plaintext) {
  string key = request.Bytes("key");
  auto encryptor = AesEncryptor::Make(ParquetCipher::AES_GCM_V1, static_cast<int32_t>(key.size()),
                                      true, true);
  string out(encryptor->CiphertextLength(static_cast<int64_t>(plaintext.size())), '\0');
  int32_t length = encryptor->SignedFooterEncrypt(
      Span(plaintext), Span(key), Span(request.Bytes("aad")), Span(request.Bytes("nonce")),
      {reinterpret_cast<uint8_t*>(out.data()), out.size()});
  return out.substr(0, length);
}

}  // namespace

string BuildAad(const Request& request) {
  string file_aad = request.Bytes("aad_prefix") + request.Bytes("aad_file_unique");
  try {
    string aad = parquet::encryption::CreateModuleAad(
        file_aad, static_cast<int8_t>(request.Integer("module_type")),
        Ordinal<int16_t>(request, "row_group"), Ordinal<int16_t>(request, "column"),
        Ordinal<int32_t>(request, "page"));
    return Reply("built").With("aad", Hex(aad));
  } catch (const ParquetException&) {
    return Reply("invalid_ordinal");
  }
}

string ModuleEncrypt(const Request& request) {
  try {
    return Reply("encrypted").With("module", Hex(Encrypted(request, request.Bytes("plaintext"))));
  } catch (const ParquetException& error) {
    if (IsWrongKey(error)) return Reply("invalid_key");
    throw;
  }
}

// As its reader of Thrift structures does: first the room, then the decryption.
string ModuleDecrypt(const Request& request) {
  string key = request.Bytes("key");
  string module = request.Bytes("module");
  try {
    auto decryptor =
        AesDecryptor::Make(ParquetCipher::AES_GCM_V1, static_cast<int32_t>(key.size()), true);
    auto room = parquet::AllocateBuffer(
        arrow::default_memory_pool(),
        decryptor->PlaintextLength(static_cast<int32_t>(module.size())));
    int32_t length = decryptor->Decrypt(Span(module), Span(key), Span(request.Bytes("aad")),
                                        room->mutable_span_as<uint8_t>());
    string plaintext(reinterpret_cast<const char*>(room->data()), length);
    return Reply("decrypted").With("plaintext", Hex(plaintext));
  } catch (const ParquetException& error) {
    return Reply(IsWrongKey(error) ? "invalid_key" : "authentication_failed");
  }
}

// A signature is the nonce and the tag of the encrypted footer, which begins with its length.
string ModuleSign(const Request& request) {
  string encrypted = Encrypted(request, request.Bytes("footer"));
  string signature = encrypted.substr(4, 12) + encrypted.substr(encrypted.size() - 16);
  return Reply("signed").With("signature", Hex(signature));
}

// As at the end of a file: the signature is the last bytes of what stands there.
string ModuleVerify(const Request& request) {
  string aad = request.Bytes("aad");
  if (aad.empty() || aad.back() != 0) {
    throw Skip("Arrow C++ verifies with the AAD of a footer only");
  }
  string all = request.Bytes("footer") + request.Bytes("signature");
  auto properties = parquet::FileDecryptionProperties::Builder()
                        .footer_key(Secret(request.Bytes("key")))->build();
  parquet::InternalFileDecryptor decryptor(properties, aad.substr(0, aad.size() - 1),
                                           ParquetCipher::AES_GCM_V1, "",
                                           arrow::default_memory_pool());
  auto bytes = Span(all);
  bool verified = Verify(bytes.first(bytes.size() - kSignature), bytes.last(kSignature),
                         &decryptor);
  return Reply(verified ? "verified" : "authentication_failed");
}
