#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <trireme/checkpoint/safetensors.h>
#include <trireme/parallel/servers/tables/table_state.h>
#include <span>

namespace trireme {

using servers::pieces_of_tables;
using servers::RowTable;
using servers::TablePiece;

std::vector<int64_t> rows_in_memory(TableServer& server) {
  std::vector<int64_t> counts;
  server.with_tables([&](std::vector<RowTable>& tables) {
    for (const RowTable& table : tables) counts.push_back(table.facts().rows);
  });
  return counts;
}

std::vector<RowRange> row_ranges(const std::vector<std::vector<int64_t>>& counts, int server) {
  std::vector<RowRange> ranges(counts.empty() ? 0 : counts[0].size());
  for (size_t table = 0; table < ranges.size(); ++table)
    for (size_t s = 0; s < counts.size(); ++s) {
      if (static_cast<int>(s) < server) ranges[table].first += counts[s][table];
      ranges[table].total += counts[s][table];
    }
  return ranges;
}

StateView state_of_tables(TableServer& server, const std::vector<RowRange>& ranges) {
  StateView view;
  server.with_tables([&](std::vector<RowTable>& tables) {
    for (const TablePiece& piece : pieces_of_tables(tables, ranges)) {
      const at::Tensor tensor =
          at::empty(piece.slice.sizes, piece.dtype == plan::DType::int64 ? at::kLong : at::kFloat);
      piece.write(static_cast<std::byte*>(tensor.mutable_data_ptr()));
      view.push_back({piece.slice, tensor, StateKind::common});
    }
  });
  return view;
}

std::string save_tables(TableServer& server, const std::vector<RowRange>& ranges,
                        const std::filesystem::path& file) {
  std::string digest;
  server.with_tables([&](std::vector<RowTable>& tables) {
    const std::vector<TablePiece> pieces = pieces_of_tables(tables, ranges);
    std::vector<plan::TensorSpec> specs;
    for (const TablePiece& piece : pieces)
      specs.push_back({piece.slice.tensor, piece.slice.sizes, piece.dtype});
    std::vector<std::byte> bytes;  // Of one tensor at a time.
    digest = checkpoint::write_safetensors(
        file, specs,
        [&](size_t i) {
          bytes.resize(pieces[i].bytes());
          pieces[i].write(bytes.data());
          return std::span<const std::byte>(bytes);
        },
        servers::metadata_of(pieces));
  });
  return digest;
}

std::map<std::string, checkpoint::StoredSlice> slices_in(const std::filesystem::path& file) {
  std::map<std::string, checkpoint::StoredSlice> slices;
  const Json saved = servers::slices_of_file(file);
  for (const auto& [name, slice] : saved.items())
    slices[name] = {slice.at("tensor"), slice.at("shape"), slice.at("from")};
  return slices;
}

void load_tables(TableServer& server, const std::vector<std::filesystem::path>& files) {
  server.with_tables([&](std::vector<RowTable>& tables) {
    servers::take_rows_of_files(tables, server.options().plan, server.options().server, files,
                                /*now=*/0);
  });
}

}  // namespace trireme
