// Arrow C++'s Bloom filters at bulk work: one request a line on stdin, one reply a line on stdout.
//
//   hash <values> <times>                XXH64 of int64 values, so many times over
//   hash_binary <offsets> <data>         XXH64 of strings, offsets int64
//   insert <values> <bytes>              hash int64 values and insert them into an empty filter
//   check <hashes> <bytes> <inserted>    look for hashes; the filter holds another file of hashes
// Arguments are files of little-endian values, which are read once and kept, and sizes of filters.
// Reply: seconds of wall clock and of CPU for the work alone, and a digest of the result, which is
// the sum of (2 i + 1) * word i over its 64-bit words, or over its bytes for `check`.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <parquet/bloom_filter.h>

namespace {

using std::string;
using std::vector;

template <typename T>
const vector<T>& File(const string& path) {
  static std::map<string, vector<T>> files;
  auto [entry, fresh] = files.try_emplace(path);
  if (fresh) {
    std::ifstream in(path, std::ios::binary | std::ios::ate);
    if (!in) throw std::invalid_argument("cannot read " + path);
    entry->second.resize(static_cast<size_t>(in.tellg()) / sizeof(T));
    in.seekg(0);
    in.read(reinterpret_cast<char*>(entry->second.data()), entry->second.size() * sizeof(T));
  }
  return entry->second;
}

template <typename T>
uint64_t Digest(const T* values, size_t size) {
  uint64_t sum = 0;
  for (size_t i = 0; i < size; ++i) sum += (2 * i + 1) * static_cast<uint64_t>(values[i]);
  return sum;
}

double CpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

template <typename Work>
string Timed(Work work) {
  auto wall = std::chrono::steady_clock::now();
  double cpu = CpuSeconds();
  work();
  cpu = CpuSeconds() - cpu;
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - wall;
  return std::to_string(seconds.count()) + ' ' + std::to_string(cpu) + ' ';
}

parquet::BlockSplitBloomFilter Filter(uint32_t bytes) {
  parquet::BlockSplitBloomFilter filter;
  filter.Init(bytes);
  if (filter.GetBitsetSize() != bytes) throw std::invalid_argument("no size of a filter");
  return filter;
}

// The results of hashing; its pages are there when the time starts.
uint64_t* Room(size_t size) {
  static vector<uint64_t> room;
  if (room.size() < size) room.resize(size);
  return room.data();
}

string Hash(std::istream& in) {
  string path;
  int repeats;
  in >> path >> repeats;
  const auto& values = File<int64_t>(path);
  auto filter = Filter(32);
  uint64_t* out = Room(values.size());
  string times = Timed([&] {
    for (int i = 0; i < repeats; ++i) filter.Hashes(values.data(), values.size(), out);
  });
  return times + std::to_string(Digest(out, values.size()));
}

string HashBinary(std::istream& in) {
  string offsets_path, data_path;
  in >> offsets_path >> data_path;
  static std::map<string, vector<parquet::ByteArray>> strings;
  auto [entry, fresh] = strings.try_emplace(offsets_path);
  auto& values = entry->second;
  if (fresh) {
    const auto& offsets = File<int64_t>(offsets_path);
    const auto& data = File<uint8_t>(data_path);
    for (size_t i = 0; i + 1 < offsets.size(); ++i)
      values.emplace_back(static_cast<uint32_t>(offsets[i + 1] - offsets[i]),
                          data.data() + offsets[i]);
  }
  auto filter = Filter(32);
  uint64_t* out = Room(values.size());
  string times = Timed([&] { filter.Hashes(values.data(), values.size(), out); });
  return times + std::to_string(Digest(out, values.size()));
}

// Batches as Arrow's own column writer makes them.
string Insert(std::istream& in) {
  string path;
  uint32_t bytes;
  in >> path >> bytes;
  const auto& values = File<int64_t>(path);
  auto filter = Filter(bytes);
  string times = Timed([&] {
    constexpr size_t kBatch = 256;
    uint64_t hashes[kBatch];
    for (size_t start = 0; start < values.size(); start += kBatch) {
      int count = static_cast<int>(std::min(kBatch, values.size() - start));
      filter.Hashes(values.data() + start, count, hashes);
      filter.InsertHashes(hashes, count);
    }
  });
  auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
  filter.WriteTo(sink.get());
  auto written = sink->Finish().ValueOrDie();
  vector<uint64_t> words(bytes / sizeof(uint64_t));
  std::memcpy(words.data(), written->data() + written->size() - bytes, bytes);
  return times + std::to_string(Digest(words.data(), words.size()));
}

string Check(std::istream& in) {
  string path, inserted;
  uint32_t bytes;
  in >> path >> bytes >> inserted;
  const auto& hashes = File<uint64_t>(path);
  static std::map<std::pair<string, uint32_t>, parquet::BlockSplitBloomFilter> filters;
  auto [entry, fresh] = filters.try_emplace({inserted, bytes});
  auto& filter = entry->second;
  if (fresh) {
    const auto& held = File<uint64_t>(inserted);
    filter.Init(bytes);
    filter.InsertHashes(held.data(), static_cast<int>(held.size()));
  }
  static vector<uint8_t> out;
  out.resize(hashes.size());
  string times = Timed([&] {
    for (size_t i = 0; i < hashes.size(); ++i) out[i] = filter.FindHash(hashes[i]);
  });
  return times + std::to_string(Digest(out.data(), out.size()));
}

string Answer(const string& line) {
  std::stringstream in(line);
  string work;
  in >> work;
  if (work == "hash") return Hash(in);
  if (work == "hash_binary") return HashBinary(in);
  if (work == "insert") return Insert(in);
  if (work == "check") return Check(in);
  throw std::invalid_argument("no such work: " + work);
}

}  // namespace

int main() {
  for (string line; std::getline(std::cin, line);) {
    try {
      std::cout << Answer(line) << std::endl;
    } catch (const std::exception& error) {
      std::cout << "error " << error.what() << std::endl;
    }
  }
}
