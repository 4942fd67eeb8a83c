// A text as numbers, for models that predict the next token; no torch.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

enum class TextUnit { characters, bytes };

struct TextTokens {
  std::string origin;  // The file that the text was read from, for messages.
  int64_t block = 0;   // Tokens per sample.
  std::vector<int32_t> tokens;
  // The number of different tokens: 256 for bytes. For characters it is the number of different
  // characters of the text; token t is the t-th of them in the order of Unicode.
  int64_t vocabulary = 0;
  std::vector<std::string> characters;  // Token -> its UTF-8 text; empty for bytes.

  // Sample i reads tokens [i * block, (i + 1) * block) and predicts those one place further on. No
  // two samples have a target token in common.
  int64_t samples() const { return (static_cast<int64_t>(tokens.size()) - 1) / block; }
};

// Reads a text file, plain or gzip. Throws Error(not_found | io | corrupt) naming the file. Throws
// Error(corrupt) naming line and byte where the text is not UTF-8 (characters only). Throws
// Error(invalid_argument) if `block` is below 1, or if the text has fewer than `block` + 1 tokens.
TextTokens read_text(const std::filesystem::path& file, int64_t block, TextUnit unit);

}  // namespace trireme::data
