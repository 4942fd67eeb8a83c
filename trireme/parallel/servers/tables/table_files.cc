#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <trireme/checkpoint/safetensors.h>
#include <trireme/parallel/servers/tables/table_files.h>
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace trireme::servers {
namespace {

[[noreturn]] void refuse_state(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "parallel", what, remedy);
}

// The floats of a table's rows from `offset` on: its values, or a part of its state.
TablePiece floats_of_table(const RowTable& table, const std::vector<int64_t>& rows,
                           const std::string& part, int64_t offset, int64_t count,
                           const RowRange& range) {
  const auto size = std::ssize(rows);
  return {{table.spec().name + "/" + part, {range.total, count}, {range.first, 0}, {size, count}},
          plan::DType::float32,
          [&table, rows, offset, count](std::byte* to) {
            const auto bytes = static_cast<size_t>(count) * sizeof(float);
            for (const int64_t row : rows) {
              std::memcpy(to, table.find(row) + offset, bytes);
              to += bytes;
            }
          }};
}

// A file of save_tables(), with what load_tables() looks up in it.
struct OpenedTables {
  std::filesystem::path path;
  checkpoint::SafetensorsFile file;
  Json slices;

  explicit OpenedTables(const std::filesystem::path& from) : path(from), file(from) {
    const auto found = file.metadata().find("slices");
    if (found != file.metadata().end())
      slices = Json::parse(found->second, nullptr, /*allow_exceptions=*/false);
    if (!slices.is_object())
      throw Error(ErrorCode::corrupt, "parallel",
                  fmt::format("{} is no file of tables", path.string()),
                  "a file of a table server");
  }

  // The bytes of a tensor: [rows, floats], or [rows] for the rows themselves.
  std::span<const std::byte> bytes_of(const RowTable& table, const std::string& part,
                                      int64_t floats) const {
    const std::string name = table.spec().name + "/" + part;
    const checkpoint::TensorView* const tensor = file.find(name);
    if (tensor == nullptr)
      refuse_state(fmt::format("{} has no '{}'", path.string(), name),
                   fmt::format("the tables that were saved; '{}' has the optimizer {}",
                               table.spec().name, to_string(table.options().optimizer.rule)));
    const bool fits = floats == 0
                          ? tensor->spec.shape.size() == 1
                          : tensor->spec.shape.size() == 2 && tensor->spec.shape[1] == floats;
    if (!fits || tensor->spec.dtype != (floats == 0 ? plan::DType::int64 : plan::DType::float32))
      refuse_state(fmt::format("'{}' in {} is {}, but the table has {} values in a row", name,
                               path.string(), tensor->spec.describe(), floats),
                   "tables of the same width");
    return tensor->bytes;
  }
};

int64_t total_in(const OpenedTables& saved, const std::string& table) {
  const Json slice = saved.slices.value(table + "/rows", Json::object());
  const auto shape = slice.value("shape", std::vector<int64_t>());
  return shape.empty() ? -1 : shape[0];
}

// Takes over the rows of a file that live on this server. Returns the number of rows in the file.
int64_t take_rows(const OpenedTables& saved, RowTable& table, const plan::TablePlan& plan,
                  int number, int server, uint32_t now) {
  const std::span<const std::byte> list = saved.bytes_of(table, "rows", 0);
  const int64_t width = table.spec().width;
  struct Part {
    const std::byte* from;
    size_t bytes;
  };
  std::vector<Part> parts{
      {saved.bytes_of(table, "values", width).data(), static_cast<size_t>(width) * sizeof(float)}};
  for (const servers::RowState& part :
       servers::state_of_row(table.options().optimizer.rule, width))
    parts.push_back({saved.bytes_of(table, std::string(part.name), part.floats).data(),
                     static_cast<size_t>(part.floats) * sizeof(float)});
  const size_t count = list.size() / sizeof(int64_t);
  for (size_t i = 0; i < count; ++i) {
    int64_t row = 0;
    std::memcpy(&row, list.data() + i * sizeof row, sizeof row);
    if (!table.spec().has(row))
      refuse_state(fmt::format("{} has row {} of table {}", saved.path.string(), row,
                               table.spec().describe()),
                   "a table with as many rows as the one that was saved");
    if (plan.server_of(number, row) != server) continue;
    auto* to = reinterpret_cast<std::byte*>(table.make(row, now));
    for (const Part& part : parts) {
      std::memcpy(to, part.from + i * part.bytes, part.bytes);
      to += part.bytes;
    }
  }
  return static_cast<int64_t>(count);
}

Json slice_as_json(const plan::TensorSlice& slice) {
  return {{"tensor", slice.tensor}, {"shape", slice.shape}, {"from", slice.from}};
}

}  // namespace

std::vector<TablePiece> pieces_of_tables(const std::vector<RowTable>& tables,
                                         const std::vector<RowRange>& ranges) {
  std::vector<TablePiece> pieces;
  for (size_t i = 0; i < tables.size(); ++i) {
    const RowTable& table = tables[i];
    const std::vector<int64_t> rows = table.rows();
    if (ranges.size() != tables.size() || ranges[i].first + std::ssize(rows) > ranges[i].total)
      refuse_state(fmt::format("table '{}' has {} rows now, which do not fit into the range that "
                               "was counted",
                               table.spec().name, rows.size()),
                   "rows_in_memory() again, while no worker pulls");
    pieces.push_back(
        {{table.spec().name + "/rows", {ranges[i].total}, {ranges[i].first}, {std::ssize(rows)}},
         plan::DType::int64,
         [rows](std::byte* to) { std::memcpy(to, rows.data(), rows.size() * sizeof(int64_t)); }});
    const int64_t width = table.spec().width;
    pieces.push_back(floats_of_table(table, rows, "values", 0, width, ranges[i]));
    int64_t offset = width;
    for (const servers::RowState& part :
         servers::state_of_row(table.options().optimizer.rule, width)) {
      pieces.push_back(
          floats_of_table(table, rows, std::string(part.name), offset, part.floats, ranges[i]));
      offset += part.floats;
    }
  }
  return pieces;
}

std::map<std::string, std::string> metadata_of(const std::vector<TablePiece>& pieces) {
  Json slices = Json::object();
  for (const TablePiece& piece : pieces) slices[piece.slice.tensor] = slice_as_json(piece.slice);
  return {{"slices", slices.dump()}};
}

Json slices_of_file(const std::filesystem::path& file) { return OpenedTables(file).slices; }

TableSnapshot::TableSnapshot(const std::vector<RowTable>& tables,
                             const std::vector<RowRange>& ranges) {
  const std::vector<TablePiece> pieces = pieces_of_tables(tables, ranges);
  std::vector<checkpoint::TensorView> views;
  for (const TablePiece& piece : pieces) {
    piece.write(tensors_.emplace_back(piece.bytes()).data());
    views.push_back({{piece.slice.tensor, piece.slice.sizes, piece.dtype}, tensors_.back()});
  }
  checkpoint::SafetensorsLayout layout = checkpoint::lay_out(views, metadata_of(pieces));
  header_ = std::move(layout.header);
  order_ = std::move(layout.order);
}

checkpoint::OutgoingFile TableSnapshot::file(std::string name) const {
  checkpoint::OutgoingFile file{std::move(name), {}};
  file.bytes.push_back(std::as_bytes(std::span(header_)));
  for (const size_t i : order_) file.bytes.emplace_back(tensors_[i]);
  return file;
}

void take_rows_of_files(std::vector<RowTable>& tables, const plan::TablePlan& plan, int server,
                        const std::vector<std::filesystem::path>& files, uint32_t now) {
  std::vector<OpenedTables> saved;
  for (const std::filesystem::path& file : files) saved.emplace_back(file);
  for (size_t i = 0; i < tables.size(); ++i) {
    RowTable& table = tables[i];
    if (table.facts().rows > 0)
      refuse_state(
          fmt::format("table '{}' has {} rows already", table.spec().name, table.facts().rows),
          "a load before the first pull");
    int64_t rows = 0;
    for (const OpenedTables& each : saved)
      rows += take_rows(each, table, plan, static_cast<int>(i), server, now);
    for (const OpenedTables& each : saved)
      if (total_in(each, table.spec().name) != rows)
        refuse_state(fmt::format("{} files have {} rows of table '{}', and {} says that there "
                                 "are {}",
                                 files.size(), rows, table.spec().name, each.path.string(),
                                 total_in(each, table.spec().name)),
                     "the files of all servers of one save, each once");
  }
}

}  // namespace trireme::servers
