#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/checkpoint/digest.h>
#include <trireme/records/formats/text_tokens.h>
#include <algorithm>
#include <map>
#include <optional>
#include <span>

namespace trireme::records {
namespace {

// The number of bytes of a character that starts with `first`, or 0 if no character starts with it
// (RFC 3629, section 4).
size_t length_of_character(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  return first >= 0xF0 && first <= 0xF4 ? 4 : 0;
}

// The character at `place`, or nothing if the bytes there are not a character.
std::optional<std::string_view> character_at(std::string_view text, size_t place) {
  const size_t length = length_of_character(static_cast<unsigned char>(text[place]));
  if (length == 0 || place + length > text.size()) return std::nullopt;
  for (size_t i = 1; i < length; ++i)
    if ((static_cast<unsigned char>(text[place + i]) & 0xC0) != 0x80) return std::nullopt;
  return text.substr(place, length);
}

std::vector<std::string_view> characters_of(std::string_view text, const std::string& origin,
                                            const TextForm& form) {
  std::vector<std::string_view> characters;
  characters.reserve(text.size());
  for (size_t place = 0; place < text.size();) {
    const auto character = character_at(text, place);
    if (!character) {
      const auto line =
          1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(place), '\n');
      throw Error(ErrorCode::corrupt, "data",
                  fmt::format("{}, line {}: byte {} of the file starts no UTF-8 character", origin,
                              line, place),
                  fmt::format("a text in UTF-8, or {}=bytes", form.unit_name));
    }
    characters.push_back(*character);
    place += character->size();
  }
  return characters;
}

// The order of UTF-8 bytes is the order of Unicode.
void number_characters(TextTokens& text, std::string_view content, const TextForm& form) {
  const std::vector<std::string_view> all = characters_of(content, text.origin, form);
  std::map<std::string_view, int32_t> numbers;
  for (const std::string_view character : all) numbers.emplace(character, 0);
  for (auto& [character, number] : numbers) {
    number = static_cast<int32_t>(text.characters.size());
    text.characters.emplace_back(character);
  }
  text.tokens.reserve(all.size());
  for (const std::string_view character : all) text.tokens.push_back(numbers.at(character));
  text.vocabulary = static_cast<int64_t>(text.characters.size());
}

void number_bytes(TextTokens& text, std::string_view content) {
  text.tokens.reserve(content.size());
  for (const char byte : content) text.tokens.push_back(static_cast<unsigned char>(byte));
  text.vocabulary = 256;
}

// `values` is a string or a vector of numbers.
template <typename Values>
void add_text(checkpoint::Digest& digest, const Values& values) {
  digest.update(std::as_bytes(std::span(values)));
}

}  // namespace

std::string TextTokens::digest() const {
  checkpoint::Digest digest;
  add_text(digest, fmt::format("{} tokens of {}\n", tokens.size(), vocabulary));
  for (const std::string& character : characters) add_text(digest, character + "\n");
  add_text(digest, tokens);
  return digest.text();
}

void require_block(const TextForm& form) {
  if (form.block < 1)
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("a block has {} tokens, but must have at least 1", form.block),
                form.block_name + "=64");
}

TextTokens tokens_of_text(const std::string& origin, std::string_view content,
                          const TextForm& form) {
  require_block(form);
  TextTokens text;
  text.origin = origin;
  text.block = form.block;
  if (form.unit == TextUnit::characters) {
    number_characters(text, content, form);
  } else {
    number_bytes(text, content);
  }
  const auto count = static_cast<int64_t>(text.tokens.size());
  if (count <= form.block)
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("{} has {} tokens: a sample needs {} ({}) and the one that follows",
                            origin, count, form.block, form.block_name),
                count > 1 ? fmt::format("a longer text, or {}={}", form.block_name, count - 1)
                          : "a longer text");
  return text;
}

}  // namespace trireme::records
