// Compares the data of a run with the data of the checkpoint that it resumes from. No torch.
#pragma once
#include <trireme/base/json.h>
#include <trireme/plan/order_options.h>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

// The key of TrainerOptions::config with the plan of the input, an object with "digest" and "sets"
// (run/input_plan.h). Ranks compare it, checkpoints keep it, and the report has the digest.
inline constexpr const char* kInputPlan = "input_plan";

// Compares two configurations by flat keys (TrainerOptions::config): `was` is that of the
// checkpoint, `now` that of this run. All keys "data..." that decide which samples are trained
// on, and in which order, must be equal. Otherwise held-out samples would be trained on.
// "data.content" is a digest of the samples themselves, so files may move. A checkpoint
// without this digest comes from an earlier version: the keys that it has are compared, and a
// warning says that this is not a full check. "data.test_content" is the digest of a test part
// that has files of its own. It must be equal if the checkpoint has it, because the losses on
// other samples could not be compared. Throws Error(invalid_argument) that names each key with
// both values.
void require_same_data(const Json& was, const Json& now);

// The changes by which a run that may continue makes other samples of the same data, for warnings:
// "data.stages is \"decode\" now and was \"decode | flip\" in the checkpoint". Compares the
// stages, and otherwise the lines of the plans of the input, in which sources have stages of their
// own.
std::vector<std::string> changes_of_input(const Json& was, const Json& now);

// Sets the keys of a configuration that say in which order `samples` are trained on.
// "data.shuffle" is "true" for OrderKind::full and "false" for none, as it was before there were
// others. "data.order" is "keyed" for a full order without a table, and the digest of whatever
// else decides the order: blocks, a mixture, lengths.
void put_order(Json& config, const plan::OrderOptions& order, int64_t samples);

}  // namespace trireme
