// Arrow C++'s Bloom filters behind a pipe: one request a line on stdin, one reply a line on stdout.
//
// Fields are separated by spaces. Bytes are "x" and hex digits; "-" is absent; lists have commas.
//   filters <path> <keys> <columns>      a list of names, or - for every column
//   probe <path> <keys> <column> <values>
//   hash <physical type> <values>
// <keys> is five fields: footer key, AAD prefix, list of column:key, list of key metadata:key,
// and flags ("v": verify a plaintext footer, "p": plaintext files are allowed).
// A value is "x" bytes (plain encoding of numbers), "i" and an integer, or "f" and a hex float.
// Replies: "ok" and records separated by ";", or "error <class> <message>".
#include <cstdint>
#include <cstring>
#include <cxxabi.h>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <vector>

#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <parquet/bloom_filter.h>
#include <parquet/bloom_filter_reader.h>
#include <parquet/encryption/encryption.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

namespace {

using arrow::util::SecureString;
using std::string;

string Hex(const string& bytes) {
  static const char* digits = "0123456789abcdef";
  string out = "x";
  out.reserve(1 + 2 * bytes.size());
  for (unsigned char c : bytes) {
    out += digits[c >> 4];
    out += digits[c & 15];
  }
  return out;
}

string Bytes(const string& field) {
  if (field.empty() || field[0] != 'x') throw std::invalid_argument("not bytes: " + field);
  string out;
  for (size_t i = 1; i + 1 < field.size(); i += 2) {
    out += static_cast<char>(std::stoi(field.substr(i, 2), nullptr, 16));
  }
  return out;
}

std::vector<string> Split(const string& text, char separator) {
  std::vector<string> out;
  if (text == "-") return out;
  std::stringstream stream(text);
  for (string item; std::getline(stream, item, separator);) out.push_back(item);
  return out;
}

SecureString Secret(const string& field) { return SecureString(Bytes(field)); }

class Retriever : public parquet::DecryptionKeyRetriever {
 public:
  explicit Retriever(const string& pairs) {
    for (const string& pair : Split(pairs, ',')) {
      auto parts = Split(pair, ':');
      keys_[Bytes(parts.at(0))] = parts.at(1);
    }
  }
  SecureString GetKey(const string& metadata) override {
    auto found = keys_.find(metadata);
    if (found == keys_.end()) {
      throw parquet::KeyAccessDeniedException("no key for this key metadata");
    }
    return Secret(found->second);
  }

 private:
  std::map<string, string> keys_;
};

parquet::ReaderProperties Properties(std::istream& in) {
  string footer, prefix, columns, pairs, flags;
  in >> footer >> prefix >> columns >> pairs >> flags;
  auto properties = parquet::default_reader_properties();
  if (footer == "-" && columns == "-" && pairs == "-") return properties;
  parquet::FileDecryptionProperties::Builder builder;
  if (footer != "-") builder.footer_key(Secret(footer));
  if (prefix != "-") builder.aad_prefix(Bytes(prefix));
  if (pairs != "-") builder.key_retriever(std::make_shared<Retriever>(pairs));
  if (flags.find('v') == string::npos) builder.disable_footer_signature_verification();
  if (flags.find('p') != string::npos) builder.plaintext_files_allowed();
  parquet::ColumnPathToDecryptionPropertiesMap keys;
  for (const string& pair : Split(columns, ',')) {
    auto parts = Split(pair, ':');
    parquet::ColumnDecryptionProperties::Builder column(Bytes(parts.at(0)));
    keys[Bytes(parts.at(0))] = column.key(Secret(parts.at(1)))->build();
  }
  if (!keys.empty()) builder.column_keys(keys);
  properties.file_decryption_properties(builder.build());
  return properties;
}

std::unique_ptr<parquet::ParquetFileReader> Open(std::istream& in) {
  string path;
  in >> path;
  return parquet::ParquetFileReader::OpenFile(Bytes(path), false, Properties(in));
}

std::unique_ptr<parquet::BloomFilter> Filter(parquet::ParquetFileReader& file, int group,
                                             int column) {
  auto filters = file.GetBloomFilterReader().RowGroup(group);
  return filters ? filters->GetColumnBloomFilter(column) : nullptr;
}

// WriteTo writes the header first: the bitset is what stands at the end.
string Bitset(const parquet::BloomFilter& filter) {
  auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
  filter.WriteTo(sink.get());
  string all = sink->Finish().ValueOrDie()->ToString();
  return all.substr(all.size() - filter.GetBitsetSize());
}

string Filters(std::istream& in) {
  auto file = Open(in);
  string columns;
  in >> columns;
  std::map<string, bool> asked;
  for (const string& name : Split(columns, ',')) asked[Bytes(name)] = true;
  auto metadata = file->metadata();
  std::stringstream out;
  for (int g = 0; g < metadata->num_row_groups(); ++g) {
    for (int c = 0; c < metadata->num_columns(); ++c) {
      string name = metadata->schema()->Column(c)->path()->ToDotString();
      if (columns != "-" && !asked.count(name)) continue;
      auto filter = Filter(*file, g, c);
      if (!filter) continue;
      auto chunk = metadata->RowGroup(g)->ColumnChunk(c);
      out << g << ' ' << Hex(name) << ' ' << chunk->bloom_filter_offset().value_or(-1) << ' '
          << chunk->bloom_filter_length().value_or(-1) << ' ' << filter->GetBitsetSize() << ' '
          << Hex(Bitset(*filter)) << ';';
    }
  }
  return out.str();
}

template <typename T>
T Number(const string& field) {
  T value{};
  if (field[0] == 'i') {
    long long integer = std::stoll(field.substr(1));
    value = static_cast<T>(integer);
    if (std::is_integral_v<T> && static_cast<long long>(value) != integer) {
      throw std::out_of_range("too large for the column: " + field);
    }
  } else if (field[0] == 'f') {
    if (std::is_integral_v<T>) throw std::invalid_argument("not an integer: " + field);
    value = static_cast<T>(std::stod(field.substr(1)));
  } else {
    string bytes = Bytes(field);
    if (bytes.size() != sizeof(T)) throw std::invalid_argument("wrong length: " + field);
    std::memcpy(&value, bytes.data(), sizeof(T));
  }
  return value;
}

uint64_t Hash(const parquet::BloomFilter& filter, parquet::Type::type type, const string& field) {
  switch (type) {
    case parquet::Type::INT32: return filter.Hash(Number<int32_t>(field));
    case parquet::Type::INT64: return filter.Hash(Number<int64_t>(field));
    case parquet::Type::FLOAT: return filter.Hash(Number<float>(field));
    case parquet::Type::DOUBLE: return filter.Hash(Number<double>(field));
    default: break;
  }
  string bytes = Bytes(field);
  auto data = reinterpret_cast<const uint8_t*>(bytes.data());
  auto size = static_cast<uint32_t>(bytes.size());
  if (type == parquet::Type::BYTE_ARRAY) return filter.Hash(parquet::ByteArray(size, data));
  if (type == parquet::Type::FIXED_LEN_BYTE_ARRAY) return filter.Hash(parquet::FLBA(data), size);
  parquet::Int96 value;
  if (type != parquet::Type::INT96 || size != sizeof(value)) {
    throw std::invalid_argument("no hash for " + parquet::TypeToString(type) + " " + field);
  }
  std::memcpy(&value, data, size);
  return filter.Hash(value);
}

int ColumnIndex(const parquet::FileMetaData& metadata, const string& name) {
  for (int c = 0; c < metadata.num_columns(); ++c) {
    if (metadata.schema()->Column(c)->path()->ToDotString() == name) return c;
  }
  throw std::invalid_argument("no column " + name);
}

string Probe(std::istream& in) {
  auto file = Open(in);
  string name, values;
  in >> name >> values;
  auto metadata = file->metadata();
  int column = ColumnIndex(*metadata, Bytes(name));
  auto type = metadata->schema()->Column(column)->physical_type();
  string out;
  for (int g = 0; g < metadata->num_row_groups(); ++g) {
    auto filter = Filter(*file, g, column);
    out += filter ? "=" : "-";
    for (const string& value : Split(values, ',')) {
      if (filter) out += filter->FindHash(Hash(*filter, type, value)) ? '1' : '0';
    }
    out += ';';
  }
  return out;
}

parquet::Type::type TypeOf(const string& name) {
  for (int t = parquet::Type::BOOLEAN; t < parquet::Type::UNDEFINED; ++t) {
    auto type = static_cast<parquet::Type::type>(t);
    if (parquet::TypeToString(type) == name) return type;
  }
  throw std::invalid_argument("no physical type " + name);
}

string Hashes(std::istream& in) {
  string type, values;
  in >> type >> values;
  parquet::BlockSplitBloomFilter filter;
  filter.Init(parquet::BlockSplitBloomFilter::kMinimumBloomFilterBytes);
  std::stringstream out;
  for (const string& value : Split(values, ',')) out << Hash(filter, TypeOf(type), value) << ';';
  return out.str();
}

string Answer(const string& line) {
  std::stringstream in(line);
  string op;
  in >> op;
  if (op == "filters") return Filters(in);
  if (op == "probe") return Probe(in);
  if (op == "hash") return Hashes(in);
  throw std::invalid_argument("no operation " + op);
}

string ClassName(const std::exception& error) {
  int status = 0;
  char* name = abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status);
  string out = status == 0 ? name : typeid(error).name();
  std::free(name);
  return out;
}

}  // namespace

int main() {
  for (string line; std::getline(std::cin, line);) {
    try {
      string answer = Answer(line);
      std::cout << "ok " << answer << std::endl;
    } catch (const std::exception& error) {
      std::cout << "error " << Hex(ClassName(error)) << ' ' << Hex(error.what()) << std::endl;
    }
  }
}
