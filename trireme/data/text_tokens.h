// Reads a text as numbers, for models that predict the next token; no torch.
#pragma once
#include <trireme/records/formats/text_tokens.h>
#include <trireme/records/unpack.h>
#include <cstdint>
#include <filesystem>

namespace trireme::data {

using records::TextTokens;
using records::TextUnit;

// Reads a text file, plain, gzip or zstd. Throws Error naming the file as read_data_file() does,
// and as tokens_of_text() does.
TextTokens read_text(const std::filesystem::path& file, int64_t block, TextUnit unit,
                     const records::UnpackLimits& limits = records::UnpackLimits::of_whole_file());

}  // namespace trireme::data
