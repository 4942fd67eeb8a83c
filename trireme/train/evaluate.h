// Exact evaluation over all replicas: each sample counts once, and sums are in float64.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/data/ordered_batches.h>
#include <trireme/data/source.h>
#include <trireme/parallel/engine.h>
#include <trireme/train/report.h>
#include <trireme/train/trainer.h>
#include <memory>

namespace trireme {

// How an evaluation reads its samples: `batch` at once, floating-point data as `dtype`.
struct EvaluationReads {
  int64_t batch = 1024;
  at::ScalarType dtype = at::kFloat;
  data::ReadAhead ahead = {};
};

// COLLECTIVE. Each data_share() of the engine evaluates its part of the source. Leaves the module
// in training mode.
Evaluation evaluate(Engine& engine, const Model& model, const Job& job, const Source& source,
                    const EvaluationReads& reads, Group& group);

// The same in one process that has the whole model and asks nobody.
Evaluation evaluate_alone(const Model& model, const Job& job, const Source& source,
                          const EvaluationReads& reads);
// The targets of a batch that are not kNoTarget.
int64_t counted_targets(const Batch& batch);
// The samples that an evaluation computes at once in a run with this global batch.
int64_t evaluation_batch(int64_t batch);

// The functions of the job, or their defaults.
at::Tensor loss_of(const Job& job, const at::Tensor& output, const Batch& batch);
int64_t correct_of(const Job& job, const at::Tensor& output, const Batch& batch);

}  // namespace trireme
