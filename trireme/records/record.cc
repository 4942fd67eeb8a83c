#include <trireme/records/record.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <algorithm>

namespace trireme::records {

const Field* Record::find(std::string_view name) const {
  const auto found =
      std::ranges::find_if(fields, [&](const Field& field) { return field.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

const Field& Record::at(std::string_view name) const {
  if (const Field* field = find(name)) return *field;
  std::vector<std::string_view> names;
  for (const Field& field : fields) names.push_back(field.name);
  throw Error(ErrorCode::invalid_argument, "data",
              fmt::format("a record has no field \"{}\"", name),
              fmt::format("one of its fields: {}", fmt::join(names, ", ")));
}

std::span<std::byte> Record::room(size_t bytes) {
  // Memory that only grows is filled with zeros only once.
  if (memory.size() < bytes) memory.resize(bytes);
  return std::span(memory).first(bytes);
}

int64_t first_whole(const Reader& reader) {
  int64_t first = 0;
  for (const int64_t number : reader.damaged()) {
    if (number != first) break;
    ++first;
  }
  return first;
}

}  // namespace trireme::records
