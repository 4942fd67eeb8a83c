#include <trireme/data/text_tokens.h>

#include <trireme/data/file_bytes.h>

namespace trireme::data {

TextTokens read_text(const std::filesystem::path& file, int64_t block, TextUnit unit,
                     const records::UnpackLimits& limits) {
  const records::TextForm form{block, unit, "data.block", "data.tokens"};
  require_block(form);
  return tokens_of_text(file.string(), read_data_file(file, limits), form);
}

}  // namespace trireme::data
