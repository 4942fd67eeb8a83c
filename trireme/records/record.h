// Records: the samples of a data set as its files hold them, whatever the format.
#pragma once
#include <trireme/plan/tensor_spec.h>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::records {

// A named value of a record. Its views live as long as the record is not read anew.
struct Field {
  std::string_view name;
  std::span<const std::byte> bytes;
  plan::DType dtype = plan::DType::uint8;
  std::span<const int64_t> shape;  // Empty: one number.
  // The bytes are not numbers but a text (UTF-8), or a file in itself, such as a JPEG.
  bool encoded = false;

  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

// One thread at a time uses a record. It is read again and again, so that its memory is reused.
struct Record {
  std::vector<Field> fields;
  // What the fields view, unless it is memory of the reader: bytes, sizes, and a block of records
  // that must live as long.
  std::vector<std::byte> memory;
  std::vector<int64_t> sizes;
  std::shared_ptr<const void> keeps;
  // The number of the reader that `keeps` is from, if it looks at it again for its next record.
  uint64_t keeper = 0;

  // Null if there is no such field.
  const Field* find(std::string_view name) const;
  // Throws Error(invalid_argument) that lists the fields that there are.
  const Field& at(std::string_view name) const;
  // Forgets the fields. The memory stays as it is, so that the next record reuses it.
  void clear() {
    fields.clear();
    sizes.clear();
    if (keeps) keeps.reset();
    keeper = 0;
  }
  // At least `bytes` bytes of memory, aligned for any number. A call ends what earlier calls gave,
  // unless the memory was large enough then.
  std::span<std::byte> room(size_t bytes);
};

// The form of a field that all records have.
struct FieldSpec {
  std::string name;
  plan::DType dtype = plan::DType::uint8;
  // Nothing: it differs between records, or is not known before they are read.
  std::optional<std::vector<int64_t>> shape;
  bool encoded = false;
};

// Gives the records of a data set by their numbers. Several threads may use a reader at once.
class Reader {
 public:
  virtual ~Reader() = default;
  virtual int64_t size() const = 0;
  // Throws Error(corrupt | io | not_found) whose message begins with place(index), and
  // Error(invalid_argument) for an index outside 0..size()-1. It never returns half a record.
  virtual void read(int64_t index, Record& record) const = 0;
  // The place of a record, for messages: "train-0003.tar, record 17 at byte 93184".
  virtual std::string place(int64_t index) const = 0;
  virtual const std::vector<FieldSpec>& fields() const = 0;
  // A digest that differs if the records differ. It does not depend on the folder of the files.
  virtual const std::string& content() const = 0;
  // The numbers of records in the blocks that data.shuffle=blocks puts into another order: files,
  // row groups or record batches; one block, if the records are in no such parts.
  virtual std::vector<int64_t> blocks() const { return {size()}; }
  // What is known of a record without reading it.
  virtual std::optional<int64_t> label(int64_t) const { return std::nullopt; }
  // A number that differs if the file of the record was written anew: its time. Unlike content(),
  // it sees every change; for what is kept of a record elsewhere.
  virtual int64_t stamp(int64_t) const { return 0; }
  // The largest number that a field of whole numbers has in any record, none of which is below 0:
  // what an earlier opening counted and kept. keep_largest() keeps it for later ones, if the place
  // where the index is can be written. Nothing: not known without reading all records.
  virtual std::optional<int64_t> largest(std::string_view) const { return std::nullopt; }
  virtual void keep_largest(std::string_view, int64_t) const {}
  // The least number of such a field, if the index knows that it is below 0.
  virtual std::optional<int64_t> least(std::string_view) const { return std::nullopt; }
  // For files on a server, which are fetched ahead of need. announce() says which records are read
  // next, in this order; reads_ahead() of them are worth it, 0: none. Each announcement is taken
  // back by one release(), when the record was read or is not wanted any more.
  virtual int64_t reads_ahead() const { return 0; }
  virtual void announce(std::span<const int64_t>) const {}
  virtual void release(std::span<const int64_t>) const {}
  // Has the processor fetch the first bytes of a record that is read soon, where that costs almost
  // nothing: from files in memory. Throws as read() for an index outside.
  virtual void warm(int64_t) const {}
  // The length by which texts are packed and bucketed: tokens, characters or bytes.
  virtual std::optional<int64_t> length(int64_t) const { return std::nullopt; }
  // The field that length() measures, if OpenOptions::length_of has named one; otherwise empty.
  virtual std::string_view measured_field() const { return {}; }
  // The names of the labels 0, 1, ...; empty if they have none.
  virtual std::vector<std::string> class_names() const { return {}; }
  // Fields that most records have, as numbers if they are cells of a text, and why they are no
  // fields of all: by name, with the place of the first record that has none.
  virtual std::map<std::string, std::string> doubtful_fields() const { return {}; }
  // The numbers of the records that the index knows to be damaged, in order: read() throws.
  virtual std::vector<int64_t> damaged() const { return {}; }
  // Checks what no record's read() checks, such as a checksum over a whole file. Throws
  // Error(corrupt | io) naming the file.
  virtual void verify_files() const {}
};

// The number of the first record that is not known to be damaged; the number of all if there is
// none.
int64_t first_whole(const Reader& reader);

}  // namespace trireme::records
