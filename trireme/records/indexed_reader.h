// The base of the readers whose records have their places in an index.
#pragma once
#include <trireme/records/index.h>
#include <trireme/records/shards.h>

namespace trireme::records {

// See Reader::damaged().
std::vector<int64_t> numbers_of_damaged(const Index& index);

class IndexedReader : public Reader {
 public:
  IndexedReader(std::shared_ptr<const Shards> shards, std::shared_ptr<const Index> index,
                std::vector<FieldSpec> fields);

  int64_t size() const override { return static_cast<int64_t>(index_->entries().size()); }
  void read(int64_t index, Record& record) const override;
  std::string place(int64_t index) const override;
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  const std::string& content() const override { return index_->content(); }
  std::vector<int64_t> blocks() const override { return blocks_; }
  std::optional<int64_t> label(int64_t index) const override;
  std::optional<int64_t> length(int64_t index) const override;
  int64_t stamp(int64_t index) const override { return stamps_[entry_of(index).file]; }
  std::optional<int64_t> largest(std::string_view field) const override {
    return number_of_fact(kLargestFact, field);
  }
  std::optional<int64_t> least(std::string_view field) const override {
    return number_of_fact(kLeastFact, field);
  }
  std::map<std::string, std::string> doubtful_fields() const override;
  std::vector<int64_t> damaged() const override { return numbers_of_damaged(*index_); }
  void keep_largest(std::string_view field, int64_t number) const override;
  int64_t reads_ahead() const override;
  void announce(std::span<const int64_t> indices) const override;
  void release(std::span<const int64_t> indices) const override;

 protected:
  // Fills the fields of a record that was cleared. Throws Damage.
  virtual void read_entry(const Entry& entry, Record& record) const = 0;
  // The record in its file: "record 17" or "line 18".
  virtual std::string name_of(const Entry& entry, int64_t number_in_file) const;

  const Shards& shards() const { return *shards_; }
  const Index& index() const { return *index_; }
  Entry entry_of(int64_t index) const;  // Throws Error(invalid_argument).

 private:
  std::optional<int64_t> number_of_fact(const char* fact, std::string_view field) const;

  std::shared_ptr<const Shards> shards_;
  std::shared_ptr<const Index> index_;
  std::vector<FieldSpec> fields_;
  std::vector<int64_t> blocks_;
  std::vector<int64_t> stamps_;  // Of the files.
};

[[noreturn]] void refuse_record_number(int64_t index, int64_t size);
// Throws Error(invalid_argument) unless `index` is in 0..size-1.
inline void require_record(int64_t index, int64_t size) {
  if (index < 0 || index >= size) refuse_record_number(index, size);
}

}  // namespace trireme::records
