// Exact evaluation over all replicas: each sample counts once, and sums are in float64.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/data/source.h>
#include <trireme/parallel/engine.h>
#include <trireme/train/report.h>
#include <trireme/train/trainer.h>
#include <memory>

namespace trireme {

// COLLECTIVE. Each data_share() of the engine evaluates its part of the source, `batch` samples at
// once. Leaves the module in training mode.
Evaluation evaluate(Engine& engine, const Model& model, const Job& job, const Source& source,
                    int64_t batch, at::ScalarType dtype, Group& group);

// The same in one process that has the whole model and asks nobody.
Evaluation evaluate_alone(const Model& model, const Job& job, const Source& source, int64_t batch,
                          at::ScalarType dtype);
// The targets of a batch that are not kNoTarget.
int64_t counted_targets(const Batch& batch);
// The samples that an evaluation computes at once in a run with this global batch.
int64_t evaluation_batch(int64_t batch);

// The functions of the job, or their defaults.
at::Tensor loss_of(const Job& job, const at::Tensor& output, const Batch& batch);
int64_t correct_of(const Job& job, const at::Tensor& output, const Batch& batch);

}  // namespace trireme
