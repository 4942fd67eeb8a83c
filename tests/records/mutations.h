// Damages of files at random, for tests of all that reads files. The same seed makes the same
// damage on every machine.
#pragma once
#include <gtest/gtest.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>

namespace trireme {

// Which changes are frequent: signs and digits in a text, bits and numbers in other files.
enum class Content { bytes, text };

// The number of seeds of a test: `usual`, or a multiple of it, which TRIREME_FUZZ says.
inline uint32_t fuzz_seeds(uint32_t usual) {
  const char* const text = std::getenv("TRIREME_FUZZ");
  return usual * static_cast<uint32_t>(text ? std::max(1, std::atoi(text)) : 1);
}

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  // The distributions of <random> differ between libraries, but its generators do not.
  size_t below(size_t count) { return count == 0 ? 0 : random_() % count; }

  // Changes `file` at one to four places.
  std::string mutate(std::string file, Content content) {
    size_t left = 1;
    if (below(2) == 0) left += below(4);
    for (; left > 0 && !file.empty(); --left) {
      const size_t kind = below(10);
      if (kind == 0)
        change_length(file);
      else if ((kind < 8) == (content == Content::text))
        change_text(file);
      else
        change_bytes(file);
    }
    return file;
  }

 private:
  void change_length(std::string& file) {
    const size_t at = below(file.size()), bytes = 1 + below(file.size() - at);
    const std::string slice = file.substr(at, bytes);
    switch (below(4)) {
      case 0: file.resize(at); break;
      case 1: file.erase(at, std::min<size_t>(bytes, 1 + below(16))); break;
      case 2: file.insert(below(file.size()), slice); break;
      default: file.insert(at, random_bytes(1 + below(16)));
    }
  }

  void change_text(std::string& file) {
    using namespace std::string_view_literals;
    static constexpr std::array kParts{
        "\""sv,  "\"\""sv,   "'"sv,     ","sv,        ":"sv,     ";"sv,
        "{"sv,   "}"sv,      "["sv,     "]"sv,        "("sv,     ")"sv,
        "\\"sv,  "\\u"sv,    "\\ud8"sv, "\n"sv,       "\r\n"sv,  "\t"sv,
        " "sv,   "/"sv,      "../"sv,   "."sv,        "-"sv,     "+"sv,
        "0"sv,   "7"sv,      "9"sv,     "e"sv,        "1e999"sv, "-1"sv,
        "nan"sv, "null"sv,   "true"sv,  "\0"sv,       "\xff"sv,  "\xef\xbb\xbf"sv,
        "="sv,   "999999"sv, "O"sv,     "\xc3\xa9"sv, "65536"sv, "9223372036854775808"sv};
    const std::string_view part = kParts[below(kParts.size())];
    const size_t at = below(file.size());
    if (below(2) == 0)
      file.insert(at, part);
    else
      file.replace(at, std::min(part.size(), file.size() - at), part);
  }

  void change_bytes(std::string& file) {
    const size_t at = below(file.size());
    switch (below(6)) {
      case 0: file[at] = static_cast<char>(file[at] ^ (1 << below(8))); break;
      case 1: file[at] = static_cast<char>(below(2) == 0 ? 0 : 0xff); break;
      case 2: file[at] = static_cast<char>(below(256)); break;
      case 3: file[at] = static_cast<char>(file[at] + (below(2) == 0 ? 1 : -1)); break;
      case 4: {
        const size_t end = at + std::min(1 + below(64), file.size() - at);
        std::fill(file.begin() + static_cast<std::ptrdiff_t>(at),
                  file.begin() + static_cast<std::ptrdiff_t>(end), file[at]);
        break;
      }
      default: overwrite_number(file, at);
    }
  }

  // Puts a number of 2, 4 or 8 bytes at its limits, in either order of bytes.
  void overwrite_number(std::string& file, size_t at) {
    const uint64_t limits[] = {0,
                               1,
                               0x7f,
                               0xffff,
                               0x10000,
                               0x7fffffff,
                               0x80000000,
                               0xffffffff,
                               0x7fffffffffffffff,
                               0x8000000000000000,
                               0xffffffffffffffff,
                               0xfffffffffffffff8,
                               uint64_t{1} << 20,
                               file.size(),
                               file.size() - at};
    const uint64_t number = limits[below(std::size(limits))];
    const size_t bytes = size_t{2} << below(3);
    const bool is_big_endian = below(2) == 0;
    for (size_t i = 0; i < bytes && at + i < file.size(); ++i)
      file[at + i] = static_cast<char>(number >> 8 * (is_big_endian ? bytes - 1 - i : i));
  }

  std::string random_bytes(size_t count) {
    std::string bytes(count, '\0');
    for (char& byte : bytes) byte = static_cast<char>(below(256));
    return bytes;
  }

  std::mt19937 random_;
};

// The results of many damaged files. If nearly all of them were refused at their first bytes, or
// none at all, the test would say nothing.
struct MutationCounts {
  int cases = 0, read = 0, refused = 0;

  void add(bool is_read, bool is_refused) {
    ++cases;
    read += is_read ? 1 : 0;
    refused += is_refused ? 1 : 0;
  }
  void expect_shares(int least_read_percent, int least_refused_percent) const {
    EXPECT_GE(100 * read, least_read_percent * cases) << read << " of " << cases << " were read";
    EXPECT_GE(100 * refused, least_refused_percent * cases)
        << refused << " of " << cases << " were refused";
  }
};

// Runs `action`, which may throw no exception that leaves it and must end in some seconds.
template <typename Action>
void expect_to_end_soon(Action action) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_NO_THROW(action());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace trireme
