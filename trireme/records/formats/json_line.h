// A JSON object in one line whose members are numbers, texts, booleans and arrays of numbers.
#pragma once
#include <trireme/records/damage.h>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace trireme::records {

enum class JsonKind { number, text, boolean, numbers };

struct JsonMember {
  std::string_view name;
  JsonKind kind = JsonKind::number;
  // A number as it is written, a text without its quotes, "true", or the numbers of an array
  // without its brackets.
  std::string_view raw;
  bool are_integers = true;  // Of numbers that fit int64.
  bool has_escapes = false;
  int64_t count = 1;  // The numbers of an array.
};

// The members of an object, from front to back, without memory of its own.
class JsonLine {
 public:
  // Throws Damage if the line is no object.
  explicit JsonLine(std::string_view line);
  // Gives the next member; false behind the last. Throws Damage saying what is wrong at which byte
  // of the line; unsupported for null, objects in the object, and arrays of other things.
  bool next(JsonMember& member);

 private:
  [[noreturn]] void fail(std::string_view what) const;
  char peek();
  void expect(char wanted);
  std::string_view quoted(bool& has_escapes);
  std::string_view number(bool& is_integer);
  void numbers(JsonMember& member);
  void word(std::string_view text);

  std::string_view line_;
  size_t at_ = 0;
  bool is_first_ = true;
};

// Writes the text without escapes, in UTF-8, to `to`, which has room for as many bytes as `raw`.
// Returns the end. Half of a surrogate pair becomes U+FFFD.
char* unescape_json(std::string_view raw, char* to);

}  // namespace trireme::records
