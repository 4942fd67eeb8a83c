// A text as numbers, for models that predict the next token. No torch.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

enum class TextUnit { characters, bytes };

struct TextTokens {
  std::string origin;  // File it came from, for messages.
  int64_t block = 0;   // Tokens a sample.
  std::vector<int32_t> tokens;
  // bytes: 256. characters: how many different ones the text has; token t is the t-th of them by
  // Unicode's order.
  int64_t vocabulary = 0;
  std::vector<std::string> characters;  // Token -> its UTF-8 text; empty for bytes.

  // Sample i reads tokens [i * block, (i + 1) * block) and predicts those one further on: samples
  // share no target.
  int64_t samples() const { return (static_cast<int64_t>(tokens.size()) - 1) / block; }
};

// Reads a text file, plain or gzip. Throws Error(not_found | io | corrupt) naming the file;
// Error(corrupt) naming line and byte where it is no UTF-8 (characters only);
// Error(invalid_argument) if `block` is below 1 or the text has no block of so many tokens and one
// more.
TextTokens read_text(const std::filesystem::path& file, int64_t block, TextUnit unit);

}  // namespace trireme::data
