// Tables that some servers save, and other numbers of servers take over.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <trireme/checkpoint/safetensors.h>
#include <trireme/net/control.h>
#include <trireme/parallel/servers/tables/table_client.h>
#include <trireme/parallel/servers/tables/table_state.h>
#include <unistd.h>
#include <filesystem>

#include "../base/expect_error.h"

namespace trireme::table_state_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kRows = 50;

struct Servers {
  explicit Servers(int count, RowRule rule = RowRule::adam, int64_t width = 3)
      : plan(plan::plan_tables(
            {.tables = {{"ads", kRows, width}, {"words", 0, 2}}, .servers = count})) {
    for (int i = 0; i < count; ++i)
      all.push_back(std::make_unique<TableServer>(
          net::Endpoint{"127.0.0.1", 0}, token,
          TableServerOptions{.plan = plan,
                             .server = i,
                             .tables = {{.optimizer = {.rule = rule, .lr = 0.1, .eps = 1e-8}}},
                             .consistency = {plan::Consistency::async}}));
    std::vector<net::Endpoint> endpoints;
    for (const auto& server : all) endpoints.push_back(server->endpoint());
    client =
        std::make_unique<TableClient>(endpoints, token, TableClientOptions{.plan = plan}, soon());
  }
  static Deadline soon() { return Deadline::after(Milliseconds(20000)); }

  // A step on some rows of both tables.
  void step(int64_t number) const {
    const at::Tensor rows = at::arange(number % 7, kRows, 1 + number % 3, at::kLong).contiguous();
    const auto values = client->pull({{0, rows}, {1, rows * 1'000'003}}, soon());
    for (const at::Tensor& each : values) (each * each).sum().backward();
    client->push(1, soon());
  }
  at::Tensor rows_of_ads() const {
    return client->peek({{0, at::arange(kRows, at::kLong)}}, soon())[0];
  }
  at::Tensor rows_of_words() const {
    return client->peek({{1, at::arange(kRows, at::kLong) * 1'000'003}}, soon())[0];
  }
  std::vector<fs::path> save(const fs::path& folder) const {
    std::vector<std::vector<int64_t>> counts;
    for (const auto& server : all) counts.push_back(rows_in_memory(*server));
    std::vector<fs::path> files;
    for (size_t i = 0; i < all.size(); ++i) {
      files.push_back(folder / fmt::format("tables-{}.safetensors", i));
      save_tables(*all[i], row_ranges(counts, static_cast<int>(i)), files.back());
    }
    return files;
  }
  void load(const std::vector<fs::path>& files) const {
    for (const auto& server : all) load_tables(*server, files);
  }

  const std::string token = net::make_token();
  plan::TablePlan plan;
  std::vector<std::unique_ptr<TableServer>> all;
  std::unique_ptr<TableClient> client;
};

class TableState : public ::testing::Test {
 protected:
  TableState() : folder(fs::temp_directory_path() / fmt::format("trireme-tables-{}", ::getpid())) {
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  ~TableState() override { fs::remove_all(folder); }
  const fs::path folder;
};

TEST_F(TableState, ContinuesOnAnyNumberOfServers) {
  for (const RowRule rule : {RowRule::sgd, RowRule::adam, RowRule::row_adagrad, RowRule::ftrl}) {
    const Servers two(2, rule);
    for (int64_t step = 0; step < 5; ++step) two.step(step);
    const std::vector<fs::path> files = two.save(folder);
    for (int64_t step = 5; step < 9; ++step) two.step(step);
    for (const int count : {1, 2, 3}) {
      const Servers others(count, rule);
      others.load(files);
      for (int64_t step = 5; step < 9; ++step) others.step(step);
      EXPECT_TRUE(at::equal(others.rows_of_ads(), two.rows_of_ads())) << to_string(rule) << count;
      EXPECT_TRUE(at::equal(others.rows_of_words(), two.rows_of_words())) << count;
    }
  }
}

TEST_F(TableState, IsSlicesThatCoverEachTensorOnce) {
  const Servers servers(2);
  for (int64_t step = 0; step < 3; ++step) servers.step(step);
  std::vector<std::vector<int64_t>> counts;
  for (const auto& server : servers.all) counts.push_back(rows_in_memory(*server));
  std::map<std::string, int64_t> covered;
  std::map<std::string, std::vector<int64_t>> shapes;
  for (int s = 0; s < 2; ++s)
    for (const StateEntry& entry :
         state_of_tables(*servers.all[static_cast<size_t>(s)], row_ranges(counts, s))) {
      plan::check(entry.slice);
      EXPECT_EQ(entry.tensor.sizes().vec(), entry.slice.sizes);
      EXPECT_EQ(entry.slice.from[0], covered[entry.slice.tensor]);
      covered[entry.slice.tensor] += entry.slice.sizes[0];
      shapes[entry.slice.tensor] = entry.slice.shape;
    }
  EXPECT_EQ(shapes.size(), 10);  // Rows, values, exp_avg, exp_avg_sq and step of two tables.
  EXPECT_THAT(shapes.at("ads/step"), ElementsAre(kRows, 1));
  EXPECT_THAT(shapes.at("words/exp_avg"), ElementsAre(kRows, 2));
  for (const auto& [name, rows] : covered) EXPECT_EQ(rows, shapes.at(name)[0]) << name;
  // The files say the same of their tensors, as a manifest does.
  const auto slices = slices_in(servers.save(folder)[1]);
  EXPECT_EQ(slices.at("ads/values").shape, shapes.at("ads/values"));
  EXPECT_EQ(slices.at("ads/values").from[0], counts[0][0]);
}

TEST_F(TableState, RefusesFilesThatAreNotAllOfASave) {
  const Servers two(2);
  two.step(0);
  const std::vector<fs::path> files = two.save(folder);
  const auto refusal = [&](const std::vector<fs::path>& some, RowRule rule = RowRule::adam,
                           int64_t width = 3) {
    const Servers one(1, rule, width);
    return message_of(ErrorCode::invalid_argument, [&] { one.load(some); });
  };
  EXPECT_THAT(refusal({files[0]}), AllOf(HasSubstr("1 files have"), HasSubstr("table 'ads'")));
  EXPECT_THAT(refusal({files[0], files[1], files[1]}), HasSubstr("each once"));
  EXPECT_THAT(refusal(files, RowRule::ftrl),
              AllOf(HasSubstr("has no 'ads/z'"), HasSubstr("ftrl")));
  EXPECT_THAT(refusal(files, RowRule::adam, 4), HasSubstr("the table has 4 values in a row"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { two.load(files); }),
              HasSubstr("table 'ads' has"));
}

TEST_F(TableState, RefusesAFileOfSomethingElse) {
  const fs::path file = folder / "other.safetensors";
  std::vector<float> values(2);
  checkpoint::write_safetensors(file, {{{"a", {2}}, std::as_bytes(std::span(values))}});
  const Servers one(1);
  EXPECT_THAT(message_of(ErrorCode::corrupt, [&] { one.load({file}); }),
              HasSubstr("is no file of tables"));
}

}  // namespace
}  // namespace trireme::table_state_test
