// Reads a text as numbers, for models that predict the next token; no torch.
#pragma once
#include <trireme/records/formats/text_tokens.h>
#include <cstdint>
#include <filesystem>

namespace trireme::data {

using records::TextTokens;
using records::TextUnit;

// Reads a text file, plain or gzip. Throws Error(not_found | io | corrupt) naming the file, and as
// tokens_of_text() does.
TextTokens read_text(const std::filesystem::path& file, int64_t block, TextUnit unit);

}  // namespace trireme::data
