#include "json_line.h"

#include <fmt/format.h>
#include <charconv>

namespace trireme::records {
namespace {

bool is_json_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The number of four hexadecimal digits, or -1.
int hex_of(std::string_view text) {
  int number = 0;
  if (text.size() < 4) return -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + 4, number, 16);
  return error == std::errc{} && end == text.data() + 4 && text[0] != '-' ? number : -1;
}

char* write_utf8(uint32_t code, char* to) {
  const auto put = [&](uint32_t byte) { *to++ = static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
  return to;
}

}  // namespace

JsonLine::JsonLine(std::string_view line) : line_(line) { expect('{'); }

void JsonLine::fail(std::string_view what) const {
  throw Damage(fmt::format("at byte {} of the line {}", at_, what),
               "one JSON object in each line");
}

char JsonLine::peek() {
  while (at_ < line_.size() && is_json_space(line_[at_])) ++at_;
  return at_ < line_.size() ? line_[at_] : '\0';
}

void JsonLine::expect(char wanted) {
  if (peek() != wanted || at_ == line_.size()) fail(fmt::format("'{}' is missing", wanted));
  ++at_;
}

bool JsonLine::next(JsonMember& member) {
  if (peek() == '}') {
    ++at_;
    if (peek() != '\0' || at_ != line_.size()) fail("something follows the object");
    return false;
  }
  if (!is_first_) expect(',');
  is_first_ = false;
  member = {};
  bool name_has_escapes = false;
  member.name = quoted(name_has_escapes);
  if (name_has_escapes) fail("the name of a member has a backslash, which is not supported");
  expect(':');
  const char first = peek();
  if (first == '"') {
    member.kind = JsonKind::text;
    member.raw = quoted(member.has_escapes);
  } else if (first == '[') {
    numbers(member);
  } else if (first == 't' || first == 'f') {
    member.kind = JsonKind::boolean;
    member.raw = first == 't' ? "true" : "false";
    word(member.raw);
  } else if (first == 'n' || first == '{') {
    throw Damage(fmt::format("the member '{}' is {}", member.name,
                             first == 'n' ? "null, so it has no value" : "an object"),
                 "flat objects with a value for each member", ErrorCode::unsupported);
  } else {
    member.raw = number(member.are_integers);
  }
  return true;
}

void JsonLine::word(std::string_view text) {
  if (line_.substr(at_, text.size()) != text) fail("there is no value");
  at_ += text.size();
}

std::string_view JsonLine::quoted(bool& has_escapes) {
  expect('"');
  const size_t start = at_;
  for (;;) {
    at_ = line_.find_first_of("\"\\", at_);
    if (at_ == std::string_view::npos) {
      at_ = line_.size();
      fail("a text is not closed");
    }
    if (line_[at_] == '"') return line_.substr(start, at_++ - start);
    has_escapes = true;
    const char kind = at_ + 1 < line_.size() ? line_[at_ + 1] : '\0';
    if (std::string_view("\"\\/bfnrtu").find(kind) == std::string_view::npos || kind == '\0')
      fail("a backslash begins no escape");
    if (kind == 'u' && hex_of(line_.substr(at_ + 2)) < 0) fail("\\u needs four digits");
    at_ += 2;
  }
}

std::string_view JsonLine::number(bool& is_integer) {
  peek();
  const size_t start = at_;
  const auto digits = [&] {
    const size_t first = at_;
    while (at_ < line_.size() && is_digit(line_[at_])) ++at_;
    if (at_ == first) fail("there is no value");
  };
  const auto at_any_of = [&](std::string_view characters) {
    return at_ < line_.size() && characters.find(line_[at_]) != std::string_view::npos;
  };
  if (at_any_of("-")) ++at_;
  digits();
  bool is_whole = true;
  if (at_any_of(".")) {
    is_whole = false;
    ++at_;
    digits();
  }
  if (at_any_of("eE")) {
    is_whole = false;
    ++at_;
    if (at_any_of("+-")) ++at_;
    digits();
  }
  const std::string_view raw = line_.substr(start, at_ - start);
  int64_t unused = 0;
  is_integer =
      is_whole && std::from_chars(raw.data(), raw.data() + raw.size(), unused).ec == std::errc{};
  return raw;
}

void JsonLine::numbers(JsonMember& member) {
  member.kind = JsonKind::numbers;
  member.count = 0;
  ++at_;
  const size_t start = at_;
  if (peek() != ']') {
    for (;;) {
      const char first = peek();
      if (first == '[' || first == '{' || first == '"' || first == 'n' || first == 't' ||
          first == 'f')
        throw Damage(fmt::format("the array '{}' has something that is not a number", member.name),
                     "arrays of numbers, without arrays in them", ErrorCode::unsupported);
      bool is_integer = true;
      number(is_integer);
      member.are_integers = member.are_integers && is_integer;
      ++member.count;
      if (peek() == ']') break;
      expect(',');
    }
  }
  member.raw = line_.substr(start, at_ - start);
  ++at_;
}

char* unescape_json(std::string_view raw, char* to) {
  for (size_t at = 0; at < raw.size();) {
    if (raw[at] != '\\') {
      *to++ = raw[at++];
      continue;
    }
    const char kind = raw[at + 1];
    at += 2;
    switch (kind) {
      case 'b': *to++ = '\b'; break;
      case 'f': *to++ = '\f'; break;
      case 'n': *to++ = '\n'; break;
      case 'r': *to++ = '\r'; break;
      case 't': *to++ = '\t'; break;
      case 'u': {
        auto code = static_cast<uint32_t>(hex_of(raw.substr(at)));
        at += 4;
        if (code >= 0xd800 && code < 0xdc00 && raw.substr(at).starts_with("\\u")) {
          const int low = hex_of(raw.substr(at + 2));
          if (low >= 0xdc00 && low < 0xe000) {
            code = 0x10000 + ((code - 0xd800) << 10) + static_cast<uint32_t>(low - 0xdc00);
            at += 6;
          }
        }
        to = write_utf8(code >= 0xd800 && code < 0xe000 ? 0xfffd : code, to);
        break;
      }
      default: *to++ = kind;
    }
  }
  return to;
}

}  // namespace trireme::records
