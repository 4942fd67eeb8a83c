#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/train/replica_stage.h>
#include <algorithm>
#include <array>
#include <vector>

namespace trireme {
namespace {

struct StageRow {
  Stage stage;
  std::string_view name;
  std::vector<Stage> next;
};

const std::array<StageRow, kStages>& stage_table() {
  using enum Stage;
  static const std::array<StageRow, kStages> table = {{
      {fresh, "fresh", {joining}},
      {joining, "joining", {between_steps, fresh}},
      {parted, "parted", {rejoining}},
      {rejoining, "rejoining", {between_steps, parted}},
      {between_steps, "between_steps", {in_step, going_back, regrouping, finished, parted, torn}},
      {in_step, "in_step", {between_steps, parted, torn}},
      {going_back, "going_back", {between_steps, fresh}},
      {regrouping, "regrouping", {parted, torn}},
      {finished, "finished", {parted, torn}},
      {torn, "torn", {}},
  }};
  return table;
}

const StageRow& row_of(Stage stage) { return stage_table()[static_cast<size_t>(stage)]; }

}  // namespace

std::string_view to_string(Stage stage) { return row_of(stage).name; }

std::span<const Stage> next_stages(Stage stage) { return row_of(stage).next; }

void ReplicaStage::enter(Stage next) {
  if (std::ranges::count(next_stages(stage_), next) == 0)
    throw Error(ErrorCode::internal, "train",
                fmt::format("a replica went from the stage {} to {}, which may not follow",
                            to_string(stage_), to_string(next)),
                "a report of this message; the newest checkpoint is whole");
  stage_ = next;
}

void ReplicaStage::leave() {
  if (stage_ == Stage::torn) return;
  if (stage_ == Stage::joining || stage_ == Stage::going_back)
    enter(Stage::fresh);
  else if (stage_ != Stage::fresh && stage_ != Stage::parted)
    enter(Stage::parted);
}

bool ReplicaStage::is_bound() const {
  return stage_ == Stage::between_steps || stage_ == Stage::in_step ||
         stage_ == Stage::regrouping || stage_ == Stage::finished;
}

bool ReplicaStage::has_state() const {
  return is_bound() || stage_ == Stage::parted || stage_ == Stage::rejoining;
}

}  // namespace trireme
