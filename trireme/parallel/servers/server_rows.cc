// Parameter servers: rows of embedding tables.
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/checkpoint/file_system.h>
#include <trireme/checkpoint/parts.h>
#include <trireme/parallel/servers/parameter_server_impl.h>
#include <trireme/parallel/servers/tables/table_checks.h>
#include <trireme/parallel/servers/tables/table_files.h>
#include <algorithm>
#include <cstring>
#include <utility>

namespace trireme {
namespace {

using servers::RowTable;
using servers::ServerCall;
using servers::ServerReply;
using servers::ServerRequest;
using servers::ServerUpdate;

constexpr size_t kBytesOfRows = 4 << 20;  // In one answer to read_rows, about.

std::span<const int64_t> row_numbers_in(const std::span<std::byte>& bytes) {
  return {reinterpret_cast<const int64_t*>(bytes.data()), bytes.size() / sizeof(int64_t)};
}

size_t floats_of(const RowTable& table) {
  return static_cast<size_t>(
      servers::floats_of_row(table.options().optimizer.rule, table.spec().width));
}

}  // namespace

servers::PushedRows ParameterServer::Impl::rows_in(const ServerRequest& request,
                                                   const net::Request& message) const {
  servers::PushedRows rows;
  size_t at = message.tensors.size() - 2 * request.tables.size();
  for (const int32_t number : request.tables) {
    const auto table = static_cast<size_t>(number);
    const plan::TableSpec& spec = options.tables.facts.tables[table];
    rows.push_back({table, spec.width, row_numbers_in(message.tensors[at]),
                    reinterpret_cast<const float*>(message.tensors[at + 1].data())});
    servers::check_rows(spec, rows.back().rows, request.worker);
    if (options.refuses_nonfinite) servers::check_finite(spec, rows.back(), request.worker);
    at += 2;
  }
  return rows;
}

std::vector<servers::ShareOfMean> ParameterServer::Impl::shares_of_rows(const ServerUpdate& update,
                                                                        double scale) const {
  double samples = 0;
  for (const servers::PushId& id : update.pushes)
    samples += static_cast<double>(held.at(id).samples);
  std::vector<servers::ShareOfMean> shares;
  for (const servers::PushId& id : update.pushes) {
    const Push& push = held.at(id);
    if (push.samples > 0)
      shares.push_back({&push.rows, static_cast<double>(push.samples) / samples * scale});
  }
  return shares;
}

// The rows follow the decisions of the parameters, so that a push counts for both or for none.
void ParameterServer::Impl::update_rows(const ServerUpdate& update) {
  if (tables.size() == 0 || update.pushes.empty()) return;
  for (const servers::PushId& id : update.pushes)
    if (!held.contains(id))
      throw Error(ErrorCode::corrupt, "parallel",
                  fmt::format("update {} has the rows of step {} of worker {}, which server {} "
                              "has not got",
                              update.number, id.clock, id.worker, options.server),
                  "the newest checkpoint: run the job again");
  if (!update.rates.empty() && first_rate > 0)
    tables.scale_rates(update.rates.front() / first_rate);
  tables.update(shares_of_rows(update, update.scale), static_cast<uint32_t>(update.number - 1),
                /*can_go_back=*/update.term == ServerUpdate::kAgreed);
  rows_version = update.number;
}

void ParameterServer::Impl::give_rows(const ServerRequest& request, const net::Request& message,
                                      net::Responder& responder) {
  std::vector<net::TensorNote> notes;
  for (size_t i = 0; i < request.tables.size(); ++i) {
    const plan::TableSpec& spec =
        options.tables.facts.tables[static_cast<size_t>(request.tables[i])];
    const std::span<const int64_t> rows = row_numbers_in(message.tensors[i]);
    servers::check_rows(spec, rows, request.worker);
    const auto bytes = rows.size() * static_cast<size_t>(spec.width) * sizeof(float);
    notes.push_back({"", "float32", {std::ssize(rows), spec.width}, bytes});
  }
  const net::Placement answer = memory->place(notes);
  int64_t now = 0;
  {
    const std::lock_guard lock(mutex);
    now = rows_version;
    for (size_t i = 0; i < notes.size(); ++i)
      tables[static_cast<size_t>(request.tables[i])].pull(
          row_numbers_in(message.tensors[i]), static_cast<uint32_t>(now),
          /*peeks=*/request.call == ServerCall::peek_rows,
          reinterpret_cast<float*>(answer.places[i].data()));
  }
  net::Message reply{encode(ServerReply{.version = now}), {}};
  for (size_t i = 0; i < notes.size(); ++i)
    reply.tensors.push_back({notes[i], answer.places[i].data()});
  responder.reply(reply);
}

// The calls about rows. Returns false for others.
bool ParameterServer::Impl::handle_of_rows(const ServerRequest& request,
                                           const net::Request& message,
                                           net::Responder& responder) {
  const auto done = [&] {
    const std::lock_guard lock(mutex);
    responder.reply({encode(ServerReply{.version = rows_version}), {}});
  };
  switch (request.call) {
    case ServerCall::rows:
    case ServerCall::peek_rows: give_rows(request, message, responder); return true;
    case ServerCall::rows_as_of: {
      const std::lock_guard lock(mutex);
      if (rows_version == request.clock + 1 && tables.go_back()) --rows_version;
    }
      done();
      return true;
    case ServerCall::read_rows: read_rows(request, responder); return true;
    case ServerCall::write_rows: write_rows(request, message), done(); return true;
    case ServerCall::save_rows: save_rows(request), done(); return true;
    case ServerCall::load_rows: load_rows(request), done(); return true;
    default: return false;
  }
}

// Nobody pushes or pulls meanwhile.
void ParameterServer::Impl::read_rows(const ServerRequest& request, net::Responder& responder) {
  const Json wish = Json::parse(request.text);
  const int table = wish.at("table");
  const size_t from = wish.at("from");
  std::vector<int64_t> rows;
  std::vector<float> floats;
  size_t width = 0;
  ServerReply reply;
  {
    const std::lock_guard lock(mutex);
    const RowTable& source = tables.all().at(static_cast<size_t>(table));
    if (from == 0 || reading.table != table) reading = {table, source.rows()};
    width = floats_of(source);
    const size_t last = std::min(
        reading.rows.size(), from + std::max<size_t>(1, kBytesOfRows / (width * sizeof(float))));
    rows.assign(reading.rows.begin() + static_cast<std::ptrdiff_t>(from),
                reading.rows.begin() + static_cast<std::ptrdiff_t>(last));
    for (const int64_t row : rows) {
      const float* const own = source.find(row);
      floats.insert(floats.end(), own, own + width);
    }
    reply.version = rows_version;
    reply.text = Json{{"more", last < reading.rows.size()}}.dump();
    if (last == reading.rows.size()) reading = {};
  }
  const auto count = std::ssize(rows);
  net::Message message{encode(reply), {}};
  message.tensors.push_back({{"", "int64", {count}, rows.size() * sizeof(int64_t)}, rows.data()});
  message.tensors.push_back(
      {{"", "float32", {count, static_cast<int64_t>(width)}, floats.size() * sizeof(float)},
       floats.data()});
  responder.reply(message);
}

void ParameterServer::Impl::write_rows(const ServerRequest& request, const net::Request& message) {
  const Json told = Json::parse(request.text);
  const int table = told.at("table");
  const std::lock_guard lock(mutex);
  rows_version = told.at("version");
  RowTable& target = tables.all().at(static_cast<size_t>(table));
  const std::span<const int64_t> rows = row_numbers_in(message.tensors.at(0));
  const size_t bytes = floats_of(target) * sizeof(float);
  if (message.tensors.at(1).size() != rows.size() * bytes)
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("{} bytes for {} rows of table '{}', which have {} each",
                            message.tensors[1].size(), rows.size(), target.spec().name, bytes));
  const std::byte* from = message.tensors[1].data();
  for (const int64_t row : rows) {
    std::memcpy(target.make(row, static_cast<uint32_t>(rows_version)), from, bytes);
    from += bytes;
  }
}

// The rows are copied first, so that updates do not wait for the disk. A failure stands in the
// note of the part, for the one that waits for it.
void ParameterServer::Impl::save_rows(const ServerRequest& request) {
  const Json told = Json::parse(request.text);
  const checkpoint::Part part{told.at("index"), told.at("count"), told.at("attempt"), {}};
  std::vector<RowRange> ranges;
  for (const Json& each : told.at("ranges")) ranges.push_back({each.at(0), each.at(1)});
  const std::filesystem::path folder = told.at("folder").get<std::string>();
  const int64_t step = told.at("step");
  // Rank 0 has made it, under a name that no other try has.
  if (const auto unfinished = checkpoint::unfinished_path(folder, step, part);
      !std::filesystem::is_directory(unfinished))
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("server {} does not see {}, into which its rows of embedding tables "
                            "are to be saved",
                            options.server, unfinished.string()),
                "a checkpoint.dir that all workers and servers share");
  std::shared_ptr<servers::TableSnapshot> copy;
  {
    const std::lock_guard lock(mutex);
    copy = std::make_shared<servers::TableSnapshot>(tables.all(), ranges);
  }
  // A call that is made again on a new connection waits for the one before it.
  const std::lock_guard lock(writing);
  if (writer.joinable()) writer.join();
  writer = std::jthread([copy, part, folder, step] {
    try {  // A save that was given up meanwhile has no folder any more.
      if (!std::filesystem::is_directory(checkpoint::unfinished_path(folder, step, part))) return;
      checkpoint::write_part(
          checkpoint::disk(), folder, step, part,
          {copy->file(checkpoint::file_of_part(servers::kTablesFile, part.index))});
    } catch (const std::exception& error) {
      log_warning("the rows of the checkpoint of step {} were not saved: {}", step, error.what());
    }
  });
}

void ParameterServer::Impl::load_rows(const ServerRequest& request) {
  const Json told = Json::parse(request.text);
  std::vector<std::filesystem::path> files;
  for (const Json& file : told.at("files")) files.emplace_back(file.get<std::string>());
  const std::lock_guard lock(mutex);
  tables.clear();
  servers::take_rows_of_files(tables.all(), options.tables, owner, files,
                              static_cast<uint32_t>(version));
}

}  // namespace trireme
