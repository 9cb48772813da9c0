// SHA-256 (FIPS 180-4), which Arrow C++ does not offer.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>

namespace sha256 {

// The first 32 bits of the fraction of a prime's root of that degree (2 or 3).
inline uint32_t RootFraction(unsigned prime, int degree) {
  auto target = static_cast<unsigned __int128>(prime) << (32 * degree);
  uint64_t root = 0;
  for (uint64_t bit = uint64_t{1} << 36; bit; bit >>= 1) {
    auto guess = static_cast<unsigned __int128>(root | bit);
    if ((degree == 2 ? guess * guess : guess * guess * guess) <= target) root |= bit;
  }
  return static_cast<uint32_t>(root);
}

template <size_t N>
std::array<uint32_t, N> RootFractions(int degree) {
  std::array<uint32_t, N> out{};
  size_t found = 0;
  for (unsigned n = 2; found < N; ++n) {
    bool prime = true;
    for (unsigned d = 2; d * d <= n; ++d) prime = prime && n % d;
    if (prime) out[found++] = RootFraction(n, degree);
  }
  return out;
}

inline void Compress(std::array<uint32_t, 8>& state, const unsigned char* chunk) {
  static const auto constants = RootFractions<64>(3);
  std::array<uint32_t, 64> w;
  for (int i = 0; i < 16; ++i) {
    w[i] = chunk[4 * i] << 24 | chunk[4 * i + 1] << 16 | chunk[4 * i + 2] << 8 | chunk[4 * i + 3];
  }
  for (int i = 16; i < 64; ++i) {
    uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int i = 0; i < 64; ++i) {
    uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + constants[i] + w[i];
    uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t worked[] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state[i] += worked[i];
}

inline std::string Digest(std::string bytes) {
  auto state = RootFractions<8>(2);
  uint64_t bits = 8 * static_cast<uint64_t>(bytes.size());
  bytes += '\x80';
  while (bytes.size() % 64 != 56) bytes += '\0';
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(bits >> shift);
  for (size_t i = 0; i < bytes.size(); i += 64) {
    Compress(state, reinterpret_cast<const unsigned char*>(bytes.data()) + i);
  }
  std::string out;
  for (uint32_t word : state) {
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(word >> shift);
  }
  return out;
}

}  // namespace sha256
