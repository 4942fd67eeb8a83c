// `trireme bench ps --table 1000000x64`: steps of an embedding on a table server in another
// process of this host, with a large table and with a small one in turn.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/cli/bench/ranks.h>
#include <trireme/cli/server_child.h>
#include <trireme/cli/table_size.h>
#include <trireme/net/control.h>
#include <trireme/parallel/nn/sharded_embedding.h>
#include <trireme/parallel/servers/tables/table_client.h>
#include <trireme/parallel/servers/tables/table_server.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <numeric>

namespace trireme::cli {
namespace {

constexpr int64_t kSmallTable = 10'000;
constexpr int64_t kWarmUpSteps = 20;
constexpr int64_t kRowsAtOnce = 50'000;  // While the table is filled.

Deadline in_a_minute() { return Deadline::after(Milliseconds(60000)); }

struct TablesBench {
  TableSize size;
  int64_t rows = 0;  // In a step.
  int workers = 1;
  net::RequestPath path = net::RequestPath::automatic;
  std::string token = net::make_token();

  plan::TablePlan plan() const {
    return plan::plan_tables(
        {.tables = {{"large", size.rows, size.width},
                    {"small", std::min(kSmallTable, size.rows), size.width}}});
  }
};

void serve_tables(const TablesBench& bench, const ServerChild::TellPorts& tell) {
  TableServerOptions options{.plan = bench.plan(),
                             .tables = {{.optimizer = {.lr = 1e-3}}},
                             .consistency = {plan::Consistency::sync},
                             .workers = bench.workers};
  options.channel.path = bench.path;
  const TableServer server({"127.0.0.1", 0}, bench.token, std::move(options));
  const int port = server.endpoint().port;
  tell({&port, 1});
  for (;;) ::pause();
}

// A worker's steps: different rows each time, each one once, and no two of them side by side.
class TableSteps {
 public:
  TableSteps(const TablesBench& bench, int port, int worker) : bench_(bench), worker_(worker) {
    TableClientOptions options{.plan = bench.plan(), .worker = worker};
    options.channel.path = bench.path;
    client_ = std::make_shared<TableClient>(std::vector<net::Endpoint>{{"127.0.0.1", port}},
                                            bench.token, options, in_a_minute());
    for (const plan::TableSpec& table : options.plan.facts.tables)
      embeddings_.emplace_back(client_, table.name,
                               torch::nn::EmbeddingOptions(table.rows, table.width));
    gradient_ = at::full({bench.rows, bench.size.width}, 0.5);
  }

  // Every row of both tables gets memory.
  void fill() {
    for (int table = 0; table < 2; ++table)
      for (int64_t from = 0; from < rows_of(table); from += kRowsAtOnce) {
        const int64_t count = std::min(kRowsAtOnce, rows_of(table) - from);
        at::Tensor rows = at::empty({count}, at::kLong);
        std::iota(rows.mutable_data_ptr<int64_t>(), rows.mutable_data_ptr<int64_t>() + count,
                  from);
        client_->pull({{table, rows}}, in_a_minute());
        client_->forget();
      }
  }

  // Seconds of one step with the large table (0) or the small one (1).
  double take(int table) {
    const at::Tensor rows = draw(rows_of(table));
    const auto start = std::chrono::steady_clock::now();
    embeddings_[static_cast<size_t>(table)](rows).backward(gradient_);
    client_->push(bench_.rows, in_a_minute());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  int64_t rows_of(int table) const {
    return table == 0 ? bench_.size.rows : std::min(kSmallTable, bench_.size.rows);
  }
  // first + i x stride mod rows: a stride without a common divisor meets no row twice.
  at::Tensor draw(int64_t rows) {
    const uint64_t mixed = mix64(static_cast<uint64_t>(worker_), static_cast<uint64_t>(step_++));
    const auto first = static_cast<int64_t>((mixed >> 32) % static_cast<uint64_t>(rows));
    int64_t stride = rows / 2 + static_cast<int64_t>((mixed & 0xffff) % 1000);
    while (std::gcd(stride, rows) != 1) ++stride;
    at::Tensor drawn = at::empty({bench_.rows}, at::kLong);
    auto* const to = drawn.mutable_data_ptr<int64_t>();
    int64_t row = first;
    for (int64_t i = 0; i < bench_.rows; ++i) {
      to[i] = row;
      row = (row + stride) % rows;
    }
    return drawn;
  }

  const TablesBench& bench_;
  int worker_;
  int64_t step_ = 0;
  std::shared_ptr<TableClient> client_;
  std::vector<nn::ShardedEmbedding> embeddings_;
  at::Tensor gradient_;
};

// Another worker, in its process, which takes the same steps until it is ended.
void work_on(const TablesBench& bench, int port, int worker) {
  TableSteps steps(bench, port, worker);
  for (int table = 0;; table = 1 - table) steps.take(table);
}

double median_us(std::vector<double> seconds) { return median(std::move(seconds)) * 1e6; }

}  // namespace

int bench_tables(const RankArguments& arguments) {
  require_steps(arguments);
  const TablesBench bench{.size = table_size_of(arguments.table, arguments.rows),
                          .rows = arguments.rows,
                          .workers = arguments.workers,
                          .path = net::request_path_from_string(arguments.path)};
  const ServerChild server(1,
                           [&](const ServerChild::TellPorts& tell) { serve_tables(bench, tell); });
  std::vector<std::unique_ptr<ServerChild>> others;
  for (int worker = 1; worker < bench.workers; ++worker)
    others.push_back(std::make_unique<ServerChild>(
        0, [&](const ServerChild::TellPorts&) { work_on(bench, server.port(), worker); }));
  TableSteps steps(bench, server.port(), 0);
  steps.fill();
  std::vector<double> seconds[2];
  for (int64_t i = -kWarmUpSteps; i < arguments.steps; ++i)
    for (const int table : {0, 1}) {
      const double took = steps.take(table);
      if (i >= 0) seconds[table].push_back(took);
    }
  const double large = median_us(seconds[0]), small = median_us(seconds[1]);
  const Json json = {{"table", arguments.table},
                     {"rows", arguments.rows},
                     {"workers", arguments.workers},
                     {"path", arguments.path},
                     {"steps", arguments.steps},
                     {"median_us", large},
                     {"min_us", *std::ranges::min_element(seconds[0]) * 1e6},
                     {"small_table_rows", std::min(kSmallTable, bench.size.rows)},
                     {"small_median_us", small},
                     {"small_min_us", *std::ranges::min_element(seconds[1]) * 1e6},
                     {"ratio", large / small}};
  if (arguments.json)
    fmt::print("{}\n", json.dump());
  else
    fmt::print(
        "{} rows of a table of {} over {}: median {:.0f} us a step, {:.2f}x that of a table "
        "of {} rows\n",
        arguments.rows, arguments.table, arguments.path, large, large / small,
        std::min(kSmallTable, bench.size.rows));
  return 0;
}

}  // namespace trireme::cli
