// Numbers with units, read from text and printed for people.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

// Reads "250ms", "5s", "2min" or "1h". A value above kLongestWait (deadline.h) is cut to it.
// Throws Error(invalid_argument) naming the text.
std::chrono::milliseconds parse_duration(std::string_view text);
// Reads "1024", "64KB", "25MB" or "1GiB" (KB = 1000, KiB = 1024). Throws Error(invalid_argument)
// naming the text.
int64_t parse_bytes(std::string_view text);
// "850 ms", "12.3 s", "4 min 05 s", "2 h 10 min"
std::string format_duration(std::chrono::milliseconds duration);
std::string format_bytes(int64_t bytes);  // "512 B", "1.5 MB"
// The entry of `known` that is nearest to `word` by edit distance, or an empty text if none is
// near. Messages use it for "did you mean".
std::string nearest_word(std::string_view word, const std::string_view* known, size_t count);

}  // namespace trireme
