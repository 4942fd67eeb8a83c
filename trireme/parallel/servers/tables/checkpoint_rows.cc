#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <trireme/base/cores.h>
#include <trireme/base/error.h>
#include <trireme/checkpoint/digest.h>
#include <trireme/checkpoint/open_checkpoint.h>
#include <trireme/checkpoint/parts.h>
#include <trireme/parallel/servers/tables/checkpoint_rows.h>
#include <trireme/parallel/servers/tables/table_checks.h>
#include <trireme/parallel/servers/tables/table_files.h>
#include <string>
#include <utility>

namespace trireme::servers {
namespace {

// All rows of a checkpoint are wanted, also if they have more bytes than a server may use.
std::vector<TableOptions> without_limits(std::vector<TableOptions> all) {
  for (TableOptions& options : all)
    options = {.optimizer = options.optimizer, .init = options.init};
  return all;
}

}  // namespace

CheckpointRows::CheckpointRows(std::shared_ptr<ModelTables> tables)
    : tables_(std::move(tables)), rows_(tables_->tables(), without_limits(tables_->options())) {
  tables_->connect([this](const std::vector<RowsOfTable>& wanted, bool /*peeks*/,
                          Deadline /*deadline*/) { return read(wanted); },
                   /*worker=*/0, tables_->patience());
}

CheckpointRows::~CheckpointRows() { tables_->disconnect(); }

void CheckpointRows::load(const std::filesystem::path& checkpoint) {
  rows_.clear();
  const checkpoint::Manifest manifest = checkpoint::open_manifest(checkpoint).manifest;
  if (const auto saved = manifest.extra.value("elsewhere", std::string());
      saved != tables_->describe())
    throw Error(ErrorCode::unsupported, "parallel",
                fmt::format("{} has the embedding tables '{}', and the model has '{}'",
                            checkpoint.string(), saved, tables_->describe()),
                "a checkpoint of the same ps.tables and tables.*");
  std::vector<std::filesystem::path> files;
  for (const std::string& name : checkpoint::files_of_parts(manifest, kTablesFile)) {
    files.push_back(checkpoint / name);
    const auto& digest = manifest.files.at(name);
    checkpoint::require_digest(
        files.back(), checkpoint::digest_of_file(files.back(), digest, usable_cores()), digest);
  }
  take_rows_of_files(rows_.all(), plan::plan_tables({tables_->tables()}), /*server=*/0, files,
                     /*now=*/0);
}

std::vector<at::Tensor> CheckpointRows::read(const std::vector<RowsOfTable>& wanted) {
  std::vector<at::Tensor> values;
  for (const RowsOfTable& each : wanted) {
    RowTable& table = rows_[static_cast<size_t>(each.table)];
    const at::Tensor list = each.rows.contiguous();
    const std::span<const int64_t> rows(list.const_data_ptr<int64_t>(),
                                        static_cast<size_t>(list.numel()));
    check_rows(table.spec(), rows, /*worker=*/0);
    values.push_back(at::empty({list.numel(), table.spec().width}));
    table.pull(rows, /*now=*/0, /*peeks=*/true, values.back().mutable_data_ptr<float>());
  }
  return values;
}

}  // namespace trireme::servers
