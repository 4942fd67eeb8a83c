// The files in which servers save their rows of embedding tables (table_state.h).
#pragma once
#include <trireme/base/json.h>
#include <trireme/checkpoint/parts.h>
#include <trireme/parallel/servers/tables/row_table.h>
#include <trireme/plan/table_plan.h>
#include <trireme/plan/tensor_slice.h>
#include <trireme/plan/tensor_spec.h>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace trireme {

namespace servers {
// A file of a checkpoint; each server has a part of it (checkpoint::file_of_part()).
inline constexpr const char* kTablesFile = "tables.safetensors";
}  // namespace servers

// The place of a server's rows of a table among those of all servers.
struct RowRange {
  int64_t first = 0, total = 0;
};

}  // namespace trireme

namespace trireme::servers {

// A server's slice of one tensor.
struct TablePiece {
  plan::TensorSlice slice;
  plan::DType dtype = plan::DType::float32;
  std::function<void(std::byte* to)> write;

  size_t bytes() const { return static_cast<size_t>(slice.elements() * plan::bytes_of(dtype)); }
};

// The slices of a server's tables; they read the tables when they are written. Throws
// Error(invalid_argument) if the rows do not fit into the ranges.
std::vector<TablePiece> pieces_of_tables(const std::vector<RowTable>& tables,
                                         const std::vector<RowRange>& ranges);
// The entry "slices" in the file's metadata.
std::map<std::string, std::string> metadata_of(const std::vector<TablePiece>& pieces);

// That entry: name -> {"tensor", "shape", "from"}. Throws Error(corrupt) if it is no such file.
Json slices_of_file(const std::filesystem::path& file);

// A copy of a server's rows, as a file has them.
class TableSnapshot {
 public:
  TableSnapshot(const std::vector<RowTable>& tables, const std::vector<RowRange>& ranges);
  TableSnapshot(const TableSnapshot&) = delete;
  TableSnapshot& operator=(const TableSnapshot&) = delete;

  // Its bytes are this object's.
  checkpoint::OutgoingFile file(std::string name) const;

 private:
  std::string header_;
  std::vector<std::vector<std::byte>> tensors_;
  std::vector<size_t> order_;
};

// Gives the tables of `server` their rows out of the files of all servers that saved, whatever
// their number. The rows count as used by the update `now`. Throws Error(invalid_argument) naming
// file and table: other tables, another width or optimizer, a file that is missing or twice, or a
// table that has rows.
void take_rows_of_files(std::vector<RowTable>& tables, const plan::TablePlan& plan, int server,
                        const std::vector<std::filesystem::path>& files, uint32_t now);

}  // namespace trireme::servers
