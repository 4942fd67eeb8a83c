// The state of embedding tables, for checkpoints: named tensors, of which each server has a slice.
//
// A table "ads" has "ads/rows" int64 [N], "ads/values" float32 [N, width], and a tensor for each
// part of its optimizer's state, such as "ads/exp_avg" [N, width] and "ads/step" [N, 1]. N counts
// the rows in memory on all servers. Entry i of each tensor belongs to the same row; those of a
// server lie together, in rising order of the rows. So any number of servers can take them over:
// each reads which rows there are, and keeps its own.
#pragma once
#include <trireme/checkpoint/manifest.h>
#include <trireme/parallel/servers/tables/table_files.h>
#include <trireme/parallel/servers/tables/table_server.h>
#include <trireme/parallel/state_view.h>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace trireme {

// [table]: the rows in memory. Each server tells the others, or the chief, this.
std::vector<int64_t> rows_in_memory(TableServer& server);
// [table]: the ranges of `server`, from the counts of all servers, [server][table]. Pure.
std::vector<RowRange> row_ranges(const std::vector<std::vector<int64_t>>& counts, int server);

// The slices of this server, as copies: entries of StateKind::common. Throws
// Error(invalid_argument) if rows were made or evicted since the counts.
StateView state_of_tables(TableServer& server, const std::vector<RowRange>& ranges);

// Writes the slices into a file of safetensors, tensor by tensor, so that no copy of the whole is
// in memory. No worker pulls or pushes meanwhile. Returns the digest of the file
// (checkpoint/digest.h), and throws as state_of_tables() and write_safetensors() do.
std::string save_tables(TableServer& server, const std::vector<RowRange>& ranges,
                        const std::filesystem::path& file);
// The slices in such a file, as a manifest has them (Manifest::slices): name -> slice.
std::map<std::string, checkpoint::StoredSlice> slices_in(const std::filesystem::path& file);

// Gives this server its rows out of the files of all servers that saved, whatever their number.
// Call it before the first pull. Throws Error(invalid_argument) naming file and table: other
// tables, another width or optimizer, a file that is missing or twice, or a server that has rows.
void load_tables(TableServer& server, const std::vector<std::filesystem::path>& files);

}  // namespace trireme
