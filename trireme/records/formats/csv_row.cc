#include "csv_row.h"

#include <trireme/base/text.h>
#include <algorithm>
#include <cstring>

namespace trireme::records {
namespace {

constexpr std::string_view kSpaces = " \t";

}  // namespace

CsvRow::CsvRow(std::string_view row, char delimiter)
    : left_(delimiter == kWhitespace ? trimmed(row) : row), delimiter_(delimiter) {}

size_t CsvRow::find_delimiter() const {
  const size_t found =
      delimiter_ == kWhitespace ? left_.find_first_of(kSpaces) : left_.find(delimiter_);
  return std::min(found, left_.size());
}

bool CsvRow::is_delimiter(char letter) const {
  return delimiter_ == kWhitespace ? kSpaces.find(letter) != std::string_view::npos
                                   : letter == delimiter_;
}

void CsvRow::go_behind(size_t end) {
  is_at_end_ = end == left_.size();
  left_.remove_prefix(is_at_end_ ? end : end + 1);
  if (delimiter_ == kWhitespace && !is_at_end_)
    left_.remove_prefix(std::min(left_.find_first_not_of(kSpaces), left_.size()));
}

bool CsvRow::next(CsvCell& cell) {
  if (is_at_end_) return false;
  cell = {};
  if (!left_.starts_with('"')) {
    const size_t end = find_delimiter();
    cell.text = left_.substr(0, end);
    if (cell.text.find('"') != std::string_view::npos)
      throw Damage("a quote stands inside of a cell that does not begin with one",
                   "\"5\"\" pipe\", as RFC 4180 says");
    go_behind(end);
    return true;
  }
  cell.is_quoted = true;
  for (size_t at = 1;; at += 2) {
    at = left_.find('"', at);
    if (at == std::string_view::npos)
      throw Damage("a quote is not closed", "a second quote at the end of the cell");
    if (at + 1 < left_.size() && left_[at + 1] == '"') {
      cell.has_escapes = true;
      continue;
    }
    cell.text = left_.substr(1, at - 1);
    if (at + 1 < left_.size() && !is_delimiter(left_[at + 1]))
      throw Damage("text follows the closing quote of a cell", "the delimiter behind the quote");
    go_behind(at + 1);
    return true;
  }
}

std::string_view unescape_in_place(const CsvCell& cell) {
  if (!cell.has_escapes) return cell.text;
  // The text is in the record's memory, which this thread has alone.
  char* const start = const_cast<char*>(cell.text.data());
  char* to = start;
  for (size_t at = 0; at < cell.text.size(); ++at) {
    *to++ = cell.text[at];
    if (cell.text[at] == '"') ++at;
  }
  return {start, to};
}

}  // namespace trireme::records
