#include <trireme/plan/mesh_operations.h>

#include <fmt/format.h>
#include <algorithm>
#include <numeric>

namespace trireme::plan {
namespace {

constexpr int64_t kLetterNumbers =
    64;  // The numbers before the tensors of a message of activations.

// The numbers of a step that all ranks of a mesh add up: the facts, and a norm.
int64_t facts_of_mesh(int ranks) { return facts_of_step(ranks, 0) + 1; }

int size_along(const EnginePlan& plan, const char* axis) {
  return static_cast<int>(plan.mesh.peers_along(axis, 0).size());
}

// [parameter]: the stages that have it.
std::vector<std::vector<int>> stages_of_parameters(const DataParallelFacts& facts,
                                                   const EnginePlan& plan) {
  std::vector<std::vector<int>> stages(plan.parameters.size());
  for (int stage = 0; stage < plan.pipeline->facts.stages; ++stage)
    for (const int part : plan.pipeline->parts_of(stage)) {
      const auto [first, last] = plan.cut->blocks_of(part);
      for (int block = first; block < last; ++block)
        for (const int param : facts.block_parameters[static_cast<size_t>(block)])
          if (auto& known = stages[static_cast<size_t>(param)];
              known.empty() || known.back() != stage)
            known.push_back(stage);
    }
  return stages;
}

// Counts how often each unit of rows is reduced and fetched in a step, as the stage's order of
// tasks and parallel/mesh/gathered_blocks.h have it.
class VisitCounts {
 public:
  VisitCounts(const RowShards& rows, bool prefetches, int blocks)
      : rows_(rows),
        prefetches_(prefetches),
        blocks_(blocks),
        is_there_(rows.units.size(), false),
        reductions(rows.units.size(), 0),
        fetches(rows.units.size(), 0) {}

  void forward(int first, int last) {
    for (int block = first; block < last; ++block) {
      enter(block, block + 1);
      // The last block's backward is next.
      running_ = kNone;
      staying_ = block + 1 == blocks_ ? block : kNone;
      free_others();
    }
  }
  // Down to `end`. `goes_on`: backward leaves the blocks that it enters, but for the one at `end`.
  void backward(int end, int last, bool reduces) {
    std::vector<bool> owed(rows_.units.size(), false);
    for (int block = last; block-- > end;) {
      enter(block, block > end ? block - 1 : kNone);
      for (size_t unit = 0; unit < owed.size(); ++unit)
        owed[unit] = owed[unit] || (rows_.units[unit].trainable && uses(rows_.units[unit], block));
    }
    running_ = staying_ = next_ = kNone;
    free_others();
    for (size_t unit = 0; unit < owed.size(); ++unit) reductions[unit] += reduces && owed[unit];
  }

 private:
  static constexpr int kNone = -1;
  const RowShards& rows_;
  const bool prefetches_;
  const int blocks_;
  std::vector<bool> is_there_;
  int running_ = kNone, staying_ = kNone, next_ = kNone;

  void free_others() {
    for (size_t unit = 0; unit < is_there_.size(); ++unit) {
      const RowUnit& own = rows_.units[unit];
      is_there_[unit] =
          is_there_[unit] && (uses(own, running_) || uses(own, staying_) || uses(own, next_));
    }
  }
  void start(int block) {
    for (size_t unit = 0; unit < is_there_.size(); ++unit)
      if (!is_there_[unit] && uses(rows_.units[unit], block)) {
        is_there_[unit] = true;
        ++fetches[unit];
      }
  }
  void enter(int block, int next) {
    running_ = block;
    staying_ = next_ = kNone;
    free_others();
    start(block);
    if (!prefetches_ || next == kNone) return;
    next_ = next;
    start(next);
  }

 public:
  std::vector<int64_t> reductions, fetches;  // [unit]
};

class MeshPlanner {
 public:
  MeshPlanner(const DataParallelFacts& facts, EnginePlan& plan)
      : facts_(facts),
        plan_(plan),
        stages_of_(stages_of_parameters(facts, plan)),
        replicas_(size_along(plan, kDataAxis)) {}

  void plan_parameters() {
    for (int stage = 0; stage < plan_.pipeline->facts.stages; ++stage)
      plan_.stages.push_back(parameters_of(stage));
    plan_shards();
  }

  void plan_operations() {
    if (plan_.ranks() == 1) return;
    for (const std::vector<int>& ranks : plan_.mesh.groups_along(kDataAxis))
      if (!plan_.stages.empty() && replicas_ > 1) exchange_gradients(ranks);
    OperationPlanner between(plan_.placement);
    send_tied(between);
    send_letters(between);
    add_beside(plan_.operations, between.take());
    if (!plan_.stages.empty()) share_scalars();
    OperationPlanner all(plan_.placement);
    all.all_reduce("facts of the step, and the norm", DType::float64,
                   facts_of_mesh(plan_.ranks()));
    add_beside(plan_.operations, all.take());
  }

 private:
  const TensorSpec& spec(int param) const { return plan_.parameters[static_cast<size_t>(param)]; }
  bool is_tied(int param) const { return stages_of_[static_cast<size_t>(param)].size() > 1; }
  int stage_of_rank(int rank) const { return plan_.mesh.coordinates_of(rank)[1]; }
  int replica_of_rank(int rank) const { return plan_.mesh.coordinates_of(rank)[0]; }

  StageParameters parameters_of(int stage) const {
    StageParameters own;
    for (size_t i = 0; i < plan_.parameters.size(); ++i)
      if (std::ranges::find(stages_of_[i], stage) != stages_of_[i].end()) {
        own.params.push_back(static_cast<int>(i));
        own.kept.push_back(plan_.parameters[i]);
        own.kept.back().dtype = facts_.kept_types[i];
      }
    for (const int part : plan_.pipeline->parts_of(stage)) {
      const auto [first, last] = plan_.cut->blocks_of(part);
      for (int block = first; block < last; ++block) own.blocks.push_back(places_of(own, block));
    }
    if (plan_.shard_level > 0 && replicas_ > 1) {
      RowShardOptions options{facts_.buckets, /*divide_frozen=*/plan_.shard_level == 3, {}};
      for (size_t i = 0; i < own.params.size(); ++i)
        if (is_tied(own.params[i])) options.evenly.insert(static_cast<int>(i));
      own.rows = plan_row_shards(own.kept, own.blocks, replicas_, options);
    } else {
      std::vector<TensorSpec> updated;
      for (const int param : own.params) updated.push_back(spec(param));
      own.buckets = plan_buckets(updated, facts_.buckets);
    }
    return own;
  }

  // The places in own.params of the parameters that a block of the model uses.
  std::vector<int> places_of(const StageParameters& own, int block) const {
    std::vector<int> places;
    for (const int param : facts_.block_parameters[static_cast<size_t>(block)])
      places.push_back(
          static_cast<int>(std::ranges::find(own.params, param) - own.params.begin()));
    std::ranges::sort(places);
    return places;
  }

  // A parameter of several stages is updated on each, and counts on the first one.
  void plan_shards() {
    plan_.shards.ranks.assign(static_cast<size_t>(plan_.ranks()), {});
    const bool is_divided = plan_.shard_level > 0 && replicas_ > 1;
    plan_.shards.teams.assign(is_divided ? 1 : static_cast<size_t>(replicas_), {});
    for (int rank = 0; rank < plan_.ranks(); ++rank) {
      const int stage = stage_of_rank(rank), replica = replica_of_rank(rank);
      plan_.shards.teams[is_divided ? 0 : static_cast<size_t>(replica)].push_back(rank);
      const StageParameters& own = plan_.stages[static_cast<size_t>(stage)];
      for (size_t i = 0; i < own.params.size(); ++i) {
        const int param = own.params[i];
        if (!spec(param).trainable || spec(param).elements() == 0 ||
            stages_of_[static_cast<size_t>(param)].front() != stage)
          continue;
        Slice slice{param, 0, spec(param).elements()};
        if (own.rows && own.rows->divides(static_cast<int>(i))) {
          const RowRange& rows = own.rows->rows[i][static_cast<size_t>(replica)];
          const int64_t row = slice.to / spec(param).shape.front();
          slice = {param, rows.from * row, rows.to * row};
        } else if (own.rows && replica > 0) {
          continue;
        }
        if (slice.from < slice.to) plan_.shards.ranks[static_cast<size_t>(rank)].push_back(slice);
      }
    }
  }

  static std::string with_stage(const std::string& content, int stage, int stages) {
    return stages == 1 ? content : fmt::format("{}, stage {}", content, stage);
  }

  // The operations of the replicas of one stage.
  void exchange_gradients(const std::vector<int>& ranks) {
    const int stage = stage_of_rank(ranks.front());
    const StageParameters& own = plan_.stages[static_cast<size_t>(stage)];
    const Placement placement = part_of(plan_.placement, ranks);
    OperationPlanner line(placement);
    const auto content = [&](const std::string& what, size_t number) {
      return with_stage(fmt::format("{} {}", what, number), stage, plan_.pipeline->facts.stages);
    };
    if (!own.rows) {
      for (size_t b = 0; b < own.buckets.buckets.size(); ++b) {
        const Bucket& bucket = own.buckets.buckets[b];
        line.all_reduce(content("gradients of bucket", b), bucket.dtype,
                        bucket.elements + std::ssize(bucket.params));
      }
    } else {
      const VisitCounts counts = visits(own, stage, placement.runs_in_background());
      for (size_t u = 0; u < own.rows->units.size(); ++u) {
        const RowUnit& unit = own.rows->units[u];
        const int64_t elements = replicas_ * unit.block_elements;
        const DType updated = spec(own.params[static_cast<size_t>(unit.params[0])]).dtype;
        repeat(plan_.shard_level > 1 ? counts.reductions[u] : 1,
               [&] { line.reduce_scatter(content("gradients of unit", u), updated, elements); });
        repeat(plan_.shard_level > 2 ? counts.fetches[u] : 1,
               [&] { line.all_gather(content("parameters of unit", u), unit.dtype, elements); });
      }
      line.all_reduce(with_stage("which gradients there are", stage, plan_.pipeline->facts.stages),
                      DType::float64, flags_of(own));
    }
    std::vector<Operation> merged;
    for (Operation& each : as_of_job(line.take(), ranks, plan_.ranks()))
      add_beside(merged, {std::move(each)});
    add_beside(plan_.operations, std::move(merged));
  }

  template <typename Call>
  static void repeat(int64_t times, Call call) {
    for (int64_t i = 0; i < times; ++i) call();
  }

  // A number for each parameter, and the gradients of those that are not divided.
  int64_t flags_of(const StageParameters& own) const {
    int64_t elements = std::ssize(own.params);
    for (size_t i = 0; i < own.params.size(); ++i)
      if (!own.rows->divides(static_cast<int>(i)) && own.kept[i].trainable)
        elements += own.kept[i].elements();
    return elements;
  }

  VisitCounts visits(const StageParameters& own, int stage, bool prefetches) const {
    VisitCounts counts(*own.rows, prefetches, static_cast<int>(own.blocks.size()));
    std::vector<int> begins = {0};  // [part of the stage]: its first block, on the stage.
    const std::vector<int> parts = plan_.pipeline->parts_of(stage);
    for (const int part : parts) {
      const auto [first, last] = plan_.cut->blocks_of(part);
      begins.push_back(begins.back() + last - first);
    }
    for (const PipelineStep& step : plan_.pipeline->steps[static_cast<size_t>(stage)]) {
      const auto place = static_cast<size_t>(std::ranges::find(parts, step.part) - parts.begin());
      const int first = begins[place], last = begins[place + 1];
      if (step.task == PipelineTask::forward) {
        counts.forward(first, last);
        continue;
      }
      // Backward comes no further than to the first block that is trained.
      const int in_model = plan_.cut->blocks_of(step.part).first;
      const bool is_half = step.task == PipelineTask::input_gradient;
      if (is_half && in_model <= first_trained()) continue;
      const int end = first + std::clamp(first_trained() - in_model, 0, last - first);
      counts.backward(end, last, !is_half);
    }
    return counts;
  }

  int first_trained() const {
    for (size_t block = 0; block < facts_.block_parameters.size(); ++block)
      for (const int param : facts_.block_parameters[block])
        if (spec(param).trainable) return static_cast<int>(block);
    return static_cast<int>(facts_.block_parameters.size());
  }

  // Each stage that has a tied parameter sends its gradient to all others that have it.
  void send_tied(OperationPlanner& between) const {
    for (size_t param = 0; !plan_.stages.empty() && param < stages_of_.size(); ++param) {
      const std::vector<int>& stages = stages_of_[param];
      if (stages.size() < 2 || !plan_.parameters[param].trainable) continue;
      for (int replica = 0; replica < replicas_; ++replica)
        for (const int from : stages)
          for (const int to : stages)
            if (from != to)
              between.send(fmt::format("gradients of '{}'", plan_.parameters[param].name),
                           plan_.mesh.rank_at({replica, from, 0}),
                           plan_.mesh.rank_at({replica, to, 0}), plan_.parameters[param].dtype,
                           own_elements(static_cast<int>(param), from, replica) + 1);
    }
  }

  int64_t own_elements(int param, int stage, int replica) const {
    const StageParameters& own = plan_.stages[static_cast<size_t>(stage)];
    const auto place = std::ranges::find(own.params, param) - own.params.begin();
    const int64_t elements = spec(param).elements();
    if (!own.rows || !own.rows->divides(static_cast<int>(place))) return elements;
    return own.rows->rows[static_cast<size_t>(place)][static_cast<size_t>(replica)].count() *
           (elements / spec(param).shape.front());
  }

  // Each message between stages begins with a letter. The tensors behind it are the data's.
  void send_letters(OperationPlanner& between) const {
    for (int rank = 0; rank < plan_.ranks(); ++rank) {
      const std::vector<int> at = plan_.mesh.coordinates_of(rank);
      for (const PipelineStep& step : plan_.pipeline->steps[static_cast<size_t>(at[1])])
        if (const auto message = plan_.pipeline->sends(step))
          between.send("letters before activations and gradients", rank,
                       plan_.mesh.rank_at({at[0], message->to, at[2]}), DType::int64,
                       kLetterNumbers);
    }
  }

  // Every stage has the parameters without dimensions.
  void share_scalars() {
    int64_t scalars = 0;
    for (const TensorSpec& each : plan_.parameters)
      scalars += each.shape.empty() && each.trainable;
    if (scalars == 0 || plan_.pipeline->facts.stages == 1) return;
    for (const std::vector<int>& ranks : plan_.mesh.groups_along(kPipelineAxis)) {
      const Placement placement = part_of(plan_.placement, ranks);
      OperationPlanner line(placement);
      line.all_reduce("parameters without dimensions", DType::float64, scalars);
      add_beside(plan_.operations, as_of_job(line.take(), ranks, plan_.ranks()));
    }
  }

  const DataParallelFacts& facts_;
  EnginePlan& plan_;
  const std::vector<std::vector<int>> stages_of_;
  const int replicas_;
};

}  // namespace

void plan_stages(const DataParallelFacts& facts, EnginePlan& plan) {
  plan.shard_level = facts.shard_level;
  MeshPlanner planner(facts, plan);
  const bool divides_layers = size_along(plan, kTensorAxis) > 1;
  if (!divides_layers) planner.plan_parameters();
  planner.plan_operations();
  plan.knows_all_operations = !divides_layers && plan.pipeline->facts.stages == 1;
}

}  // namespace trireme::plan
