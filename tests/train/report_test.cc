#include <gmock/gmock.h>

#include <trireme/train/report.h>
#include <cmath>

namespace trireme::report_test {
namespace {

TEST(Report, HasTheKeysThatScriptsRead) {
  Report report;
  report.loss_history = {1.5, 0.5};
  report.eval = Evaluation{.loss = 0.25, .accuracy = 0.75, .samples = 8};
  const Json json = report.to_json();
  for (const char* key :
       {"steps", "epochs", "workers", "world_size", "strategy", "loss_history", "train_loss",
        "eval", "samples_per_second", "wall_seconds", "cpu_seconds", "peak_pss_bytes",
        "checkpoint", "parameters_sha256", "cost", "activation_bytes", "parameter_bytes"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["eval"], (Json{{"loss", 0.25}, {"accuracy", 0.75}, {"samples", 8}}));
  EXPECT_EQ(json["loss_history"], (Json{1.5, 0.5}));
}

TEST(Report, HasTheMemoryOfEachRank) {
  Report report;
  report.activation_bytes = {1000, 0};
  report.predicted_activation_bytes = {990, 0};
  EXPECT_EQ(report.to_json()["activation_bytes"],
            (Json::array({{{"measured", 1000}, {"predicted", 990}},
                          {{"measured", nullptr}, {"predicted", nullptr}}})));
}

TEST(Report, WithoutEvaluationSaysNull) { EXPECT_TRUE(Report().to_json()["eval"].is_null()); }

TEST(Report, StaysJsonWhereANumberIsNone) {
  Report report;
  report.train_loss = std::nan("");
  report.loss_history = {std::numeric_limits<double>::infinity()};
  const Json back = Json::parse(report.to_json().dump());
  EXPECT_TRUE(back["train_loss"].is_null());
  EXPECT_TRUE(back["loss_history"][0].is_null());
}

TEST(Report, KeepsLossesToTheLastBit) {
  Report report;
  report.loss_history = {0.1, 1.0 / 3.0};
  EXPECT_EQ(Json::parse(report.to_json().dump())["loss_history"].get<std::vector<double>>(),
            report.loss_history);
}

}  // namespace
}  // namespace trireme::report_test
