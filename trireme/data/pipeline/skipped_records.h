// The records of a reader that cannot be read or decoded, and are left out. No torch.
#pragma once
#include <trireme/base/error.h>
#include <trireme/records/record.h>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace trireme::data {

// The rule for records that cannot be read or decoded.
struct BadRecords {
  bool skip = false;   // False: an error that names it.
  int64_t most = 100;  // More skipped ones of a source in this process are an error.
};

// Whether an error of this code says that a record is damaged.
bool is_of_bad_record(ErrorCode code);
// The error with the place of the record. Readers name it themselves; decoders and stages do not.
Error in_its_place(const records::Reader& reader, int64_t record, const Error& error);

// Any number of threads may use it.
class SkippedRecords {
 public:
  SkippedRecords(std::shared_ptr<const records::Reader> reader, BadRecords rule)
      : reader_(std::move(reader)), rule_(rule) {}
  bool skips() const { return rule_.skip; }
  // Counts the record, once however often it is read. Returns false if the error is none of the
  // record's content. Throws the error with the record's place if none is skipped, and
  // Error(invalid_argument) naming the last record if they are more than the rule allows.
  [[nodiscard]] bool take(const Error& error, int64_t record) const;
  // The numbers of the counted records, in ascending order.
  std::vector<int64_t> numbers() const;

 private:
  std::shared_ptr<const records::Reader> reader_;
  BadRecords rule_;
  mutable std::mutex mutex_;
  mutable std::set<int64_t> numbers_;
};

}  // namespace trireme::data
