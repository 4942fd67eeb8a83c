// Documents of tokens as Megatron has them: a file of all tokens, and an index of the documents.
#pragma once
#include <trireme/records/pack/shard_file.h>
#include <trireme/records/record.h>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::records {

// The field whose lists of whole numbers are tokens: `wanted`, or the field `tokens`, or the only
// such field. Throws Error(invalid_argument) that lists the fields.
std::string find_token_field(const Reader& reader, const std::string& wanted);

// The largest token of a record; -1 for an empty document. Throws Damage if the field is missing,
// is no list of whole numbers, or has a token outside of int32.
int64_t largest_token(const Record& record, std::string_view field);

class TokenPair {
 public:
  // Makes tokens.bin and tokens.idx in the folder. No token will be larger than `largest`. Throws
  // Error(io), as add() and finish() do.
  TokenPair(const std::filesystem::path& folder, std::string field, int64_t largest);
  // Adds a document. Throws Damage as largest_token() does.
  void add(const Record& record);
  // Writes the index, and returns when both files are on the disk.
  void finish();
  std::vector<std::string> files() const;
  int64_t bytes() const { return tokens_.bytes() + index_.bytes(); }

 private:
  const std::string field_;
  const bool is_wide_;  // Tokens of int32, and not of uint16.
  ShardFile tokens_, index_;
  std::vector<int32_t> lengths_;
  std::string bytes_;
};

}  // namespace trireme::records
