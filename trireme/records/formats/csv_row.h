// A row of a CSV file (RFC 4180), cell by cell.
#pragma once
#include <trireme/records/damage.h>
#include <string_view>

namespace trireme::records {

// As a delimiter: any number of spaces and tabs. No row has this character outside of quotes, so
// no other delimiter is it.
inline constexpr char kWhitespace = '\n';

struct CsvCell {
  std::string_view text;  // Without the quotes around it.
  bool is_quoted = false;
  bool has_escapes = false;  // "" in it stands for a quote.
};

class CsvRow {
 public:
  // `row` is without its end of line.
  CsvRow(std::string_view row, char delimiter);
  // Gives the next cell; false behind the last. An empty row has one empty cell. Throws Damage for
  // a quote at a wrong place.
  bool next(CsvCell& cell);

 private:
  // The place of the next delimiter, or that behind the row.
  size_t find_delimiter() const;
  bool is_delimiter(char letter) const;
  // Goes on behind the delimiter at this place, or behind the row.
  void go_behind(size_t end);

  std::string_view left_;
  char delimiter_;
  bool is_at_end_ = false;
};

// Writes the cell's text without escapes to its own place. Returns the text.
std::string_view unescape_in_place(const CsvCell& cell);

}  // namespace trireme::records
