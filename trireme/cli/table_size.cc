#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/cli/table_size.h>
#include <algorithm>
#include <charconv>

namespace trireme::cli {
namespace {

constexpr int64_t kMostRowsOfAStep = 10'000;  // The small table has no more.

bool read_number(const char*& at, const char* end, int64_t& number) {
  const auto [next, status] = std::from_chars(at, end, number);
  at = next;
  return status == std::errc() && number > 0;
}

}  // namespace

TableSize table_size_of(const std::string& text, int64_t rows_of_step) {
  const auto refuse = [](const std::string& what, const std::string& remedy) {
    throw Error(ErrorCode::invalid_argument, "cli", what, remedy);
  };
  TableSize size;
  const char* at = text.data();
  const char* const end = at + text.size();
  if (!read_number(at, end, size.rows) || at == end || *at++ != 'x' ||
      !read_number(at, end, size.width) || at != end)
    refuse(fmt::format("--table {} is not ROWSxWIDTH", text), "--table 1000000x64");
  if (rows_of_step < 1 || rows_of_step > std::min(size.rows, kMostRowsOfAStep))
    refuse(fmt::format("--rows {} of a table of {} rows", rows_of_step, size.rows),
           fmt::format("--rows 1 to {}", std::min(size.rows, kMostRowsOfAStep)));
  return size;
}

}  // namespace trireme::cli
