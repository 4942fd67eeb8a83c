#include <trireme/data/pipeline/skipped_records.h>

#include <fmt/format.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/log.h>
#include <iterator>
#include <string>
#include <utility>

namespace trireme::data {

bool is_of_bad_record(ErrorCode code) {
  return code == ErrorCode::corrupt || code == ErrorCode::unsupported ||
         code == ErrorCode::not_found;
}

bool SkippedRecords::take(const Error& error, int64_t record) const {
  if (!is_of_bad_record(error.code())) return false;
  const Error named = in_its_place(*reader_, record, error);
  const auto [what, remedy] = parts_of(named);
  if (!rule_.skip)
    throw Error(named.code(), "data", what,
                remedy + (remedy.empty() ? "" : ", or ") + "data.on_bad_record=skip");
  int64_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!numbers_.insert(record).second) return true;
    count = std::ssize(numbers_);
  }
  log_warning("a record is left out: {}", what);
  if (count <= rule_.most) return true;
  throw Error(ErrorCode::invalid_argument, "data",
              fmt::format("{} records could not be read, more than data.bad_records, {}; the last "
                          "one: {}",
                          count, rule_.most, what),
              "whole files, or a larger data.bad_records");
}

Error in_its_place(const records::Reader& reader, int64_t record, const Error& error) {
  const std::string place = reader.place(record);
  auto [what, remedy] = parts_of(error);
  if (what.find(place) == std::string::npos) what = fmt::format("{}: {}", place, what);
  return {error.code(), "data", what, remedy};
}

std::vector<int64_t> SkippedRecords::numbers() const {
  const std::lock_guard lock(mutex_);
  return {numbers_.begin(), numbers_.end()};
}

}  // namespace trireme::data
