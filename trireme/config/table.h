// The table of all keys of an option struct.
#pragma once
#include <trireme/config/row.h>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trireme::config {

// Immutable; any thread. The options of its functions are pointers to the struct of the table.
class Table {
 public:
  // `defaults` is an object of the struct, with which a key that is not given is compared.
  Table(Rows rows, std::shared_ptr<const void> defaults)
      : rows_(std::move(rows)), defaults_(std::move(defaults)) {}

  std::span<const Row> rows() const { return rows_; }
  const void* defaults() const { return defaults_.get(); }

  const Row* find(std::string_view name) const;  // Null if the key does not exist.
  bool is_section(std::string_view name) const;  // "model"
  // A key or section to propose; empty if none is near.
  std::string nearest(std::string_view unknown_name) const;

 private:
  Rows rows_;
  std::shared_ptr<const void> defaults_;
};

// The table of the struct's own rows_of().
template <typename Options>
const Table& table_of() {
  static const Table table(rows_of(static_cast<const Options*>(nullptr)),
                           std::make_shared<const Options>());
  return table;
}

}  // namespace trireme::config
