// What the formats with a record in each line have in common.
#pragma once
#include <trireme/base/text.h>
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "indexed_files.h"

namespace trireme::records {

// Whole numbers and others, with spaces around them. Nothing if the text is not one.
template <typename T>
std::optional<T> parse_cell(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The types that a value of a text can have.
enum class CellType { integer, real, boolean, text };

inline plan::DType dtype_of(CellType type) {
  switch (type) {
    case CellType::integer: return plan::DType::int64;
    case CellType::real: return plan::DType::float32;
    case CellType::boolean: return plan::DType::boolean;
    case CellType::text: return plan::DType::uint8;
  }
  return plan::DType::uint8;
}

// A column or a member, as the index's facts have it.
struct TextColumn {
  std::string name;
  CellType type = CellType::text;
  bool is_array = false;
  bool is_everywhere = true;
};

inline Json json_of_columns(const std::vector<TextColumn>& columns) {
  Json json = Json::array();
  for (const TextColumn& column : columns)
    json.push_back(
        {column.name, static_cast<int>(column.type), column.is_array, column.is_everywhere});
  return json;
}

inline std::vector<TextColumn> columns_of_json(const Json& json) {
  std::vector<TextColumn> columns;
  for (const Json& column : json)
    columns.push_back({.name = column.at(0),
                       .type = static_cast<CellType>(column.at(1).get<int>()),
                       .is_array = column.at(2),
                       .is_everywhere = column.at(3)});
  return columns;
}

// The columns that the options choose, all of which there are.
inline std::vector<TextColumn> chosen_columns(const OpenOptions& options, const Json& facts) {
  const auto all = columns_of_json(facts.at("columns"));
  if (options.columns.empty()) return all;
  std::vector<TextColumn> chosen;
  for (const std::string& name : options.columns)
    chosen.push_back(*std::ranges::find(all, name, &TextColumn::name));
  return chosen;
}

inline std::vector<FieldSpec> specs_of_columns(const std::vector<TextColumn>& columns) {
  std::vector<FieldSpec> specs;
  for (const TextColumn& column : columns) {
    if (!column.is_everywhere) continue;
    FieldSpec spec{.name = column.name, .dtype = dtype_of(column.type)};
    spec.encoded = column.type == CellType::text;
    if (!spec.encoded && !column.is_array) spec.shape = std::vector<int64_t>{};
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace trireme::records
