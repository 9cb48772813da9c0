// Hashes, blocks, bitsets and their headers and sizes.
#include <cstdio>
#include <cstring>
#include <optional>

#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <parquet/bloom_filter.h>
#include <parquet/exception.h>
#include <parquet/properties.h>

#include "vector_filters.h"

namespace {

using parquet::BlockSplitBloomFilter;
using parquet::ParquetException;

constexpr int64_t kBlock = 32;

template <typename T>
T Plain(const string& plain) {
  if (plain.size() != sizeof(T)) {
    throw Skip("Arrow C++ hashes typed values, which have no wrong length");
  }
  T value;
  std::memcpy(&value, plain.data(), sizeof(T));
  return value;
}

// Arrow C++ refuses no size for an empty filter, but takes the next power of two: a filter of
// exactly a size is made as one that was read.
BlockSplitBloomFilter FilterOf(const string& bitset) {
  BlockSplitBloomFilter filter;
  filter.Init(reinterpret_cast<const uint8_t*>(bitset.data()),
              static_cast<uint32_t>(bitset.size()));
  return filter;
}

BlockSplitBloomFilter EmptyFilter(int64_t num_bytes) {
  if (num_bytes < 0) throw Skip("sizes are unsigned in Arrow C++");
  return FilterOf(string(num_bytes, '\0'));
}

bool IsIllegalSize(const ParquetException& error) {
  return string(error.what()).find("Given length of bitset is illegal") != string::npos;
}

// A refused size is an outcome of some operations.
template <typename Function>
string OrInvalidSize(Function function) {
  try {
    return function();
  } catch (const ParquetException& error) {
    if (IsIllegalSize(error)) return Reply("invalid_size");
    throw;
  }
}

string Written(const BlockSplitBloomFilter& filter) {
  auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
  filter.WriteTo(sink.get());
  return sink->Finish().ValueOrDie()->ToString();
}

// The power of two by which a filter shrinks, where it is one.
std::optional<uint32_t> Folds(int64_t from, int64_t to) {
  for (uint32_t folds = 0; to > 0 && (to << folds) <= from; ++folds) {
    if ((to << folds) == from) return folds;
  }
  return std::nullopt;
}

// Folding to a size is private, as opposed to folding to a probability: an explicit instantiation
// may name it.
template <auto Member>
struct Private {
  friend void FoldBy(BlockSplitBloomFilter& filter, uint32_t folds) { (filter.*Member)(folds); }
};
void FoldBy(BlockSplitBloomFilter& filter, uint32_t folds);
template struct Private<&BlockSplitBloomFilter::Fold>;

string Inserted(BlockSplitBloomFilter filter, uint64_t hash) {
  filter.InsertHash(hash);
  return Reply("computed").With("block", Hex(BitsetOf(filter)));
}

}  // namespace

uint64_t HashPlain(const parquet::BloomFilter& filter, const string& type, const string& plain,
                   int64_t type_length) {
  auto data = reinterpret_cast<const uint8_t*>(plain.data());
  auto size = static_cast<uint32_t>(plain.size());
  if (type == "INT32") return filter.Hash(Plain<int32_t>(plain));
  if (type == "INT64") return filter.Hash(Plain<int64_t>(plain));
  if (type == "FLOAT") return filter.Hash(Plain<float>(plain));
  if (type == "DOUBLE") return filter.Hash(Plain<double>(plain));
  if (type == "INT96") return filter.Hash(Plain<parquet::Int96>(plain));
  if (type == "BYTE_ARRAY") return filter.Hash(parquet::ByteArray(size, data));
  if (type != "FIXED_LEN_BYTE_ARRAY") throw Skip("Arrow C++ has no hash function for " + type);
  if (size != type_length) {
    throw Skip("Arrow C++ hashes typed values, which have no wrong length");
  }
  return filter.Hash(parquet::FLBA(data), size);
}

// The header is written first: the bitset is what stands at the end.
string BitsetOf(const parquet::BloomFilter& filter) {
  string all = Written(static_cast<const BlockSplitBloomFilter&>(filter));
  return all.substr(all.size() - filter.GetBitsetSize());
}

namespace {

uint64_t HashOf(const BlockSplitBloomFilter& filter, const Request& request, const string& plain) {
  int64_t length = request.Has("type_length") ? request.Integer("type_length") : 0;
  return HashPlain(filter, request.Text("physical_type"), plain, length);
}

}  // namespace

string HashValue(const Request& request) {
  uint64_t hash = HashOf(EmptyFilter(kBlock), request, request.Bytes("plain"));
  string digits;
  for (int shift = 56; shift >= 0; shift -= 8) digits += static_cast<char>(hash >> shift);
  return Reply("hashed").With("hash", Hex(digits));
}

string BlockMask(const Request& request) { return Inserted(EmptyFilter(kBlock), request.Hash()); }

string BlockInsert(const Request& request) {
  return Inserted(FilterOf(request.Bytes("block")), request.Hash());
}

// The index is where the one block is that a hash changes.
string BlockIndex(const Request& request) {
  return OrInvalidSize([&]() -> string {
    auto filter = EmptyFilter(kBlock * request.Integer("num_blocks"));
    filter.InsertHash(request.Hash());
    size_t first = BitsetOf(filter).find_first_not_of('\0');
    return Reply("computed").With("index", first / kBlock);
  });
}

string BlockCheck(const Request& request) {
  return Reply(FilterOf(request.Bytes("block")).FindHash(request.Hash()) ? "present" : "absent");
}

string BitsetBuild(const Request& request) {
  return OrInvalidSize([&]() -> string {
    auto filter = EmptyFilter(request.Integer("num_bytes"));
    for (const string& value : request.List("values")) {
      if (value != "null") filter.InsertHash(HashOf(filter, request, Unhex(value)));
    }
    return Reply("built").With("bitset", Hex(BitsetOf(filter)));
  });
}

string BitsetCheck(const Request& request) {
  return OrInvalidSize([&]() -> string {
    auto filter = FilterOf(request.Bytes("bitset"));
    string answers;
    for (const string& value : request.List("values")) {
      answers += filter.FindHash(HashOf(filter, request, Unhex(value))) ? "true," : "false,";
    }
    return Reply("checked").With("answers", answers);
  });
}

string Fold(const Request& request) {
  return OrInvalidSize([&]() -> string {
    auto filter = FilterOf(request.Bytes("bitset"));
    auto folds = Folds(filter.GetBitsetSize(), request.Integer("num_bytes"));
    if (!folds) throw Skip("Arrow C++ folds by powers of two only, and takes no other size");
    if (*folds > 0) FoldBy(filter, *folds);
    return Reply("folded").With("bitset", Hex(BitsetOf(filter)));
  });
}

// As the writer does: its properties check, then it takes the optimal number of bytes.
string SizingBlocks(const Request& request) {
  if (request.Text("power_of_two") == "false") {
    throw Skip("Arrow C++ makes no filters but of powers of two");
  }
  parquet::BloomFilterOptions options;
  options.ndv = request.Integer("ndv");
  options.fpp = std::stod(request.Text("fpp"));
  try {
    parquet::ColumnProperties().set_bloom_filter_options(options);
  } catch (const ParquetException& error) {
    bool fpp = string(error.what()).find("false positive probability") != string::npos;
    return Reply(fpp ? "invalid_fpp" : "invalid_ndv");
  }
  uint32_t num_bytes = BlockSplitBloomFilter::OptimalNumOfBytes(*options.ndv, options.fpp);
  return Reply("computed").With("num_blocks", num_bytes / kBlock);
}

string HeaderEncode(const Request& request) {
  auto filter = EmptyFilter(request.Integer("num_bytes"));
  string all = Written(filter);
  return Reply("encoded").With("header", Hex(all.substr(0, all.size() - filter.GetBitsetSize())));
}

namespace {

BlockSplitBloomFilter Deserialized(const string& data) {
  arrow::io::BufferReader stream(arrow::Buffer::FromString(data));
  return BlockSplitBloomFilter::Deserialize(parquet::default_reader_properties(), &stream);
}

bool IsNoHeader(const string& message) {
  return message.find("Deserializing bloom filter header failed") != string::npos;
}

// What refuses a header that could be read.
string RefusedHeader(const ParquetException& error) {
  string message = error.what();
  bool unsupported = IsIllegalSize(error) || message.find("Unsupported") != string::npos;
  if (unsupported || IsNoHeader(message) || message.find("size is incorrect") != string::npos) {
    return Reply(unsupported ? "unsupported" : "malformed");
  }
  throw error;
}

// "... expected 64 bytes, got 0": how many bytes of the bitset are not there.
std::optional<int64_t> MissingBytes(const ParquetException& error) {
  long long expected, got;
  const char* found = std::strstr(error.what(), "expected ");
  if (!found || std::sscanf(found, "expected %lld bytes, got %lld", &expected, &got) != 2) {
    return std::nullopt;
  }
  return expected - got;
}

// The answer to the shortest prefix that has a header; what is missing of its bitset is zeros.
string DecodedPrefix(const string& prefix) {
  try {
    auto filter = Deserialized(prefix);
    return Reply("decoded").With("num_bytes", filter.GetBitsetSize())
        .With("header_size", prefix.size() - filter.GetBitsetSize());
  } catch (const ParquetException& error) {
    auto missing = MissingBytes(error);
    if (!missing) return RefusedHeader(error);
    return DecodedPrefix(prefix + string(*missing, '\0'));
  }
}

}  // namespace

string HeaderDecode(const Request& request) {
  string data = request.Bytes("data");
  for (size_t size = 0; size < data.size(); ++size) {
    try {
      Deserialized(data.substr(0, size));
    } catch (const ParquetException& error) {
      if (!IsNoHeader(error.what())) return DecodedPrefix(data.substr(0, size));
    }
  }
  return DecodedPrefix(data);
}
