// The formats of checkpoints keep promises: old ones load, and the history is exact and out of the
// manifest.
#include <gmock/gmock.h>
#include <trireme/checkpoint/load.h>
#include <bit>
#include <cmath>
#include <limits>

#include "folder_testing.h"
#include "old_format.h"

namespace trireme::checkpoint::format_test {
namespace {

using testing::ElementsAre;

class Format : public CheckpointFolder {
 protected:
  std::filesystem::path save_losses(const std::vector<double>& losses) {
    Folder folder(runs_);
    Manifest manifest;
    manifest.step = static_cast<int64_t>(losses.size());
    manifest.loss_history = losses;
    const OwnedTensor weight("w", {64}), moment("w.exp_avg", {64});
    return folder.save(manifest, {weight.view()}, {moment.view()});
  }
};

TEST_F(Format, KeepsLossesBitByBit) {
  std::vector<double> losses;
  std::mt19937_64 random(1);
  while (losses.size() < 100'000) losses.push_back(std::bit_cast<double>(random()));
  using Limits = std::numeric_limits<double>;
  for (const double loss :
       {0.0, -0.0, 0.1, Limits::denorm_min(), Limits::max(), Limits::infinity(),
        -Limits::infinity(), Limits::quiet_NaN(), -Limits::quiet_NaN()})
    losses.push_back(loss);
  const auto after = open_checkpoint(save_losses(losses)).manifest.loss_history;
  ASSERT_EQ(after.size(), losses.size());
  for (size_t i = 0; i < after.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint64_t>(after[i]), std::bit_cast<uint64_t>(losses[i])) << i;
}

TEST_F(Format, TheManifestOfAMillionStepsIsSmall) {
  const auto path = save_losses(std::vector<double>(1'000'000, 0.123456789));
  EXPECT_LT(std::filesystem::file_size(path / kManifestFile), 2'000u);
  EXPECT_LT(std::filesystem::file_size(path / "history.safetensors"), 8'001'000u);
  const Saved saved = load_checkpoint(path, [](const Saved& found) {
    EXPECT_EQ(found.manifest.loss_history.size(), 1'000'000u);
    return std::vector<Destination>();
  });
  EXPECT_EQ(saved.manifest.loss_history.back(), 0.123456789);
}

TEST_F(Format, OneAndTwoStillLoad) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const int format : {1, 2}) {
    const auto path = save_losses({0.5, infinity, 0.25});
    turn_into_format(format, path);
    EXPECT_THAT(names_in(path),
                ElementsAre("manifest.json", "model.safetensors", "optimizer.safetensors"));
    const Saved opened = open_checkpoint(path);
    EXPECT_EQ(opened.manifest.format, format);
    EXPECT_THAT(opened.manifest.loss_history, ElementsAre(0.5, infinity, 0.25));
    EXPECT_EQ(opened.model->find("w")->bytes.size(), 256u);
    std::vector<float> weight(64);
    const auto loaded = load_newest(runs_, [&](const Saved& saved) {
      return std::vector<Destination>{
          {saved.model->find("w"), std::as_writable_bytes(std::span(weight))}};
    });
    EXPECT_EQ(loaded->manifest.step, 3);
    EXPECT_EQ(weight[63], 63);
    flip_bit(path / kModelFile, std::filesystem::file_size(path / kModelFile) - 1);
    EXPECT_TRUE(fails_with(ErrorCode::corrupt, {path / kModelFile}, [&] { newest_in(runs_); }));
  }
}

// Such a file has the digest that its manifest says.
TEST_F(Format, AHistoryOfAnotherFormIsRefused) {
  const auto path = save_losses({0.5});
  const OwnedTensor wrong("loss", {2}), missing("other", {2});
  for (const OwnedTensor* tensor : {&wrong, &missing}) {
    Json fields = Json::parse(read_file(path / kManifestFile));
    fields.erase("sha256");
    fields["files"]["history.safetensors"] =
        write_safetensors(path / "history.safetensors", {tensor->view()});
    write_manifest(path, fields);
    EXPECT_TRUE(fails_with(ErrorCode::corrupt, {path / "history.safetensors", "no list of losses"},
                           [&] { open_checkpoint(path); }));
  }
}

}  // namespace
}  // namespace trireme::checkpoint::format_test
