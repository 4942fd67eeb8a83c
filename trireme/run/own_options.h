// Options of a programme's own, as keys of the configuration. No torch.
#pragma once
#include <trireme/config/row.h>
#include <any>
#include <map>
#include <typeindex>
#include <utility>

namespace trireme {

// One struct for each registered type.
class OwnOptions {
 public:
  OwnOptions();  // The defaults of the structs that are registered.
  // Throws Error(invalid_argument) if the struct was not registered before this was made.
  template <typename Options>
  const Options& get() const {
    return std::any_cast<const Options&>(find(typeid(Options)));
  }
  template <typename Options>
  Options& get() {
    return const_cast<Options&>(std::as_const(*this).get<Options>());
  }

 private:
  const std::any& find(std::type_index type) const;

  std::map<std::type_index, std::any> structs_;
};
config::Rows rows_of(const OwnOptions*);
void add_own_options(std::type_index type, std::any defaults, config::Rows rows);

// Adds the keys of a struct that has rows_of() (config/row.h) to the configuration. They are read,
// checked, listed, and compared between ranks as all others are. config.own.get<Options>() has the
// values. Call it once for a struct, before any configuration is read or made, on every rank.
// Throws Error(invalid_argument) if it comes too late.
template <typename Options>
void register_options() {
  config::Rows rows = rows_of(static_cast<const Options*>(nullptr));
  for (config::Row& row : rows)
    row.slot = [inner = std::move(row.slot)](void* own) {
      return inner(&static_cast<OwnOptions*>(own)->get<Options>());
    };
  add_own_options(typeid(Options), Options(), std::move(rows));
}

}  // namespace trireme
