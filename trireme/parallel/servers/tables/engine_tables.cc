#include <trireme/checkpoint/open_checkpoint.h>
#include <trireme/checkpoint/parts.h>
#include <trireme/parallel/servers/tables/engine_tables.h>
#include <trireme/parallel/servers/tables/table_files.h>
#include <filesystem>
#include <utility>

namespace trireme::servers {
namespace {

// For a disk that reads or copies all rows.
constexpr Milliseconds kForDisk{600'000};

plan::TablePlan plan_of_tables(const ModelTables* tables, int servers) {
  if (tables == nullptr) return {};
  return plan::plan_tables({tables->tables(), servers});
}

}  // namespace

EngineTables::EngineTables(std::shared_ptr<ModelTables> tables, int servers)
    : tables_(std::move(tables)), plan_(plan_of_tables(tables_.get(), servers)) {}

EngineTables::~EngineTables() {
  if (tables_ && client_ != nullptr) tables_->disconnect();
}

void EngineTables::connect(ServerClient& client, int worker, Milliseconds patience) {
  if (!tables_) return;
  client_ = &client;
  tables_->connect([&client](const std::vector<RowsOfTable>& wanted, bool peeks,
                             Deadline deadline) { return client.rows(wanted, peeks, deadline); },
                   worker, patience);
}

void EngineTables::take_gradients() {
  if (tables_)
    gradients_ = tables_->pulled().gradients(tables_->tables(), tables_->worker(),
                                             /*checks=*/false);
}

std::vector<at::Tensor> EngineTables::gradients() const {
  std::vector<at::Tensor> all;
  for (const RowValues& each : gradients_) all.push_back(each.values);
  return all;
}

void EngineTables::give_gradients() {
  if (tables_) client_->give_rows(gradients_);
}

void EngineTables::forget_step() {
  gradients_.clear();
  if (tables_) tables_->pulled().forget();
}

StateElsewhere EngineTables::elsewhere() const {
  if (!tables_) return {};
  return {plan_.facts.servers, tables_->describe(),
          [client = client_](const std::filesystem::path& folder, int64_t step,
                             checkpoint::Part& part) {
            client->save_rows(folder, step, part, Deadline::after(kForDisk));
          }};
}

void EngineTables::load(const std::string& checkpoint) {
  if (!tables_) return;
  const auto folder = std::filesystem::absolute(checkpoint);
  std::vector<std::filesystem::path> files;
  for (const std::string& file :
       checkpoint::files_of_parts(checkpoint::open_manifest(folder).manifest, kTablesFile))
    files.push_back(folder / file);
  client_->load_rows(files, Deadline::after(kForDisk));
}

Json EngineTables::facts(Deadline deadline) const {
  Json all = Json::array();
  if (!tables_) return all;
  for (const plan::TableSpec& spec : plan_.facts.tables) all.push_back({{"name", spec.name}});
  for (const Json& server : client_->facts_of_firsts(deadline))
    for (size_t i = 0; i < all.size(); ++i)
      for (const auto& [name, count] : server.at("tables").at(i).items())
        all[i][name] = all[i].value(name, int64_t{0}) + count.get<int64_t>();
  return all;
}

}  // namespace trireme::servers
