#include "csv_row.h"

#include <algorithm>
#include <cstring>

namespace trireme::records {

bool CsvRow::next(CsvCell& cell) {
  if (is_at_end_) return false;
  cell = {};
  if (!left_.starts_with('"')) {
    const size_t end = std::min(left_.find(delimiter_), left_.size());
    cell.text = left_.substr(0, end);
    if (cell.text.find('"') != std::string_view::npos)
      throw Damage("a quote stands inside of a cell that does not begin with one",
                   "\"5\"\" pipe\", as RFC 4180 says");
    is_at_end_ = end == left_.size();
    left_.remove_prefix(is_at_end_ ? end : end + 1);
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
    is_at_end_ = at + 1 == left_.size();
    if (!is_at_end_ && left_[at + 1] != delimiter_)
      throw Damage("text follows the closing quote of a cell", "the delimiter behind the quote");
    left_.remove_prefix(is_at_end_ ? at + 1 : at + 2);
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
