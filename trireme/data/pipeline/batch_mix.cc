#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/data/pipeline/batch_mix.h>
#include <trireme/images/mix.h>

namespace trireme::data {
namespace {

constexpr uint64_t kOfMixes = 0x6d6978;

// The rows of a batch that was loaded with the sample before it, without those that were left out.
struct PairsOfRows {
  // Row 2i is the neighbour of row 2i + 1, which is a sample of the share.
  std::vector<int64_t> pairs;
};

PairsOfRows pairs_of(size_t places, const std::vector<size_t>& missing,
                     std::vector<size_t>& left_out) {
  PairsOfRows rows;
  size_t next_missing = 0;
  int64_t row = 0, row_before = -1;
  for (size_t place = 0; place < places; ++place) {
    const bool is_missing = next_missing < missing.size() && missing[next_missing] == place;
    next_missing += is_missing ? 1 : 0;
    const int64_t own = is_missing ? -1 : row++;
    if (place > 0 && is_missing) left_out.push_back(place - 1);
    if (place > 0 && !is_missing) {
      rows.pairs.push_back(row_before < 0 ? own : row_before);
      rows.pairs.push_back(own);
    }
    row_before = own;
  }
  return rows;
}

images::Mix draw_mix(const Stage& stage, const at::Tensor& data, images::Random& random) {
  if (stage.form->name == "mixup") return images::draw_mixup(stage.number("alpha"), random);
  if (data.dim() != 4)
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("cutmix takes images [samples, channels, height, width], and the data "
                            "has {} dimensions",
                            data.dim()),
                "mixup");
  return images::draw_cutmix(stage.number("alpha"), {data.size(2), data.size(3)}, random);
}

}  // namespace

Draws with_neighbour(const Draws& draws) {
  Draws all = draws;
  if (all.indices.empty()) return all;
  const Draw neighbour = draws.at_before();
  all.indices.insert(all.indices.begin(), neighbour.index);
  if (!all.seeds.empty()) all.seeds.insert(all.seeds.begin(), neighbour.seed);
  return all;
}

BatchMix::BatchMix(const Stages& stages, int64_t classes) : stages_(stages), classes_(classes) {
  if (stages_.empty() || classes_ >= 2) return;
  throw Error(ErrorCode::invalid_argument, "data",
              fmt::format("the stage {} mixes the targets of classes, and the data has {} classes",
                          stages_[0].form->name, classes_),
              "labels from 0 on, or data.classes=N");
}

Example BatchMix::run(const Draws& draws, std::vector<size_t>& left_out, const Load& load) const {
  const Draws all = with_neighbour(draws);
  std::vector<size_t> missing;
  const Example loaded = load(all, missing);
  images::Random random(mix64(draws.seed, kOfMixes, static_cast<uint64_t>(draws.epoch),
                              static_cast<uint64_t>(draws.consumed)));
  const auto which = static_cast<size_t>(random.below(std::ssize(stages_)));
  const images::Mix mix = draw_mix(stages_[which], loaded.data, random);
  // A batch is rolled by one, so a row that only stands before another one is cut off.
  const auto mixed = [&](const std::function<at::Tensor(const at::Tensor&)>& pick,
                         const std::function<at::Tensor(const at::Tensor&)>& own) {
    at::Tensor data = pick(loaded.data);
    if (data.size(0) > 0) images::mix_samples(data, mix);
    Example batch{own(data), own(images::mix_targets(pick(loaded.target), classes_, mix))};
    for (const auto& [name, tensor] : loaded.more) batch.more.emplace(name, own(pick(tensor)));
    return batch;
  };
  if (missing.empty())
    return mixed([](const at::Tensor& rows) { return rows; },
                 [](const at::Tensor& rows) { return rows.narrow(0, 1, rows.size(0) - 1); });
  const at::Tensor pairs =
      at::tensor(pairs_of(all.indices.size(), missing, left_out).pairs, at::kLong);
  return mixed(
      [&](const at::Tensor& rows) { return rows.index_select(0, pairs); },
      [](const at::Tensor& rows) { return rows.slice(0, 1, std::nullopt, 2).contiguous(); });
}

}  // namespace trireme::data
