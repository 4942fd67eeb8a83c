// A text as numbers, for models that predict the next token.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::records {

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
  // A digest of the tokens and of what they mean. The size of a sample does not count.
  std::string digest() const;
};

// How a text becomes tokens, and the names of these options in messages.
struct TextForm {
  int64_t block = 0;
  TextUnit unit = TextUnit::characters;
  std::string block_name, unit_name;  // "data.block", "data.tokens"
};

// Throws Error(invalid_argument) if the block is below 1.
void require_block(const TextForm& form);

// The tokens of the content of a file. Throws Error(corrupt) naming line and byte where the text
// is not UTF-8 (characters only). Throws Error(invalid_argument) if the block is below 1, or if
// the text has fewer than a block and one token.
TextTokens tokens_of_text(const std::string& origin, std::string_view content,
                          const TextForm& form);

}  // namespace trireme::records
