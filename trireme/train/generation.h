// A replica has these for one generation of its job: the groups, the engine on them, and the
// loader of its share.
#pragma once
#include <trireme/data/loader.h>
#include <trireme/parallel/engine.h>
#include <trireme/train/guards.h>
#include <trireme/train/replica_groups.h>
#include <trireme/train/replica_model.h>
#include <trireme/train/trainer.h>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace trireme {

// Used by one thread.
class Generation {
 public:
  explicit Generation(ReplicaGroups groups) : groups_(std::move(groups)) {}

  Group& group() const { return *groups_.all; }
  bool is_first() const { return group().rank() == 0; }

  // COLLECTIVE. Makes a new engine. It contains nothing of the old one: no optimizer state, errors
  // of compression or loss scale. `setting` comes without groups. Throws Error(invalid_argument)
  // if the strategy needs blocks that the model does not name.
  void make_engine(const Strategy& strategy, ReplicaModel& model, EngineSetting setting);
  Engine& engine() const { return *engine_; }
  bool is_torn() const { return engine_ && engine_->is_torn(); }
  // The parameters and what else updates change; the same tensors during a generation.
  const std::vector<NamedTensor>& updated_parameters();

  // Makes the loader of this replica's share.
  void load_from(std::shared_ptr<const Source> source, const LoaderOptions& options);
  Loader& loader() { return *loader_; }
  bool has_loader() const { return loader_.has_value(); }
  // The samples of each share of a batch.
  std::vector<int64_t> shares_of(int64_t samples) const;
  // The plan of the engine and of the data.
  plan::EnginePlan plan() const;

  int passes = 1;       // The micro-batches of a step.
  int64_t batches = 0;  // The batches that counted as used in this generation.

 private:
  const ReplicaGroups groups_;
  std::unique_ptr<Engine> engine_;
  std::vector<NamedTensor> updated_;
  std::optional<Loader> loader_;
};

// The setting of an engine, without groups and without the functions that it calls. The guard must
// outlive the engine.
EngineSetting engine_setting_of(const TrainerOptions& options, const Job& job, ReplicaModel& model,
                                const Guard& guard, bool is_elastic);
LoaderOptions loader_options_of(const TrainerOptions& options, int64_t batch);
// The first of the passes into which a rank cuts its share of the first batch. No thread loads it.
Batch first_pass_of(std::shared_ptr<const Source> source, LoaderOptions options,
                    const DataShare& share, int passes);

}  // namespace trireme
