// Two digests: SHA-256 for files and parameters, and a small mixing function for random numbers.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

// SHA-256 that is computed piece by piece. One thread at a time may use an object.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  std::string hex();  // 64 lower-case digits. The object cannot be used afterwards.

 private:
  struct State;
  std::unique_ptr<State> state_;
};
std::string sha256_hex(std::string_view text);

// SplitMix64 (Steele, Lea, Flood 2014): a bijection that scatters neighbouring inputs.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
// Makes one seed from several numbers, e.g. mix64(seed, epoch, rank).
template <typename... Rest>
constexpr uint64_t mix64(uint64_t first, uint64_t second, Rest... rest) {
  const uint64_t mixed = mix64(mix64(first) ^ second);
  if constexpr (sizeof...(rest) == 0)
    return mixed;
  else
    return mix64(mixed, static_cast<uint64_t>(rest)...);
}

}  // namespace trireme
