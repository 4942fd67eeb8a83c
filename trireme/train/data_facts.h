// What must be the same about the data when a run goes on from a checkpoint. No torch.
#pragma once
#include <trireme/base/json.h>

namespace trireme {

// `was` and `now`: configurations by flat keys (TrainerOptions::config), of the checkpoint and of
// this run. All keys "data..." that decide which samples are trained on, and in which order, have
// to be equal: otherwise samples that were held out would be trained on, or held-out ones have
// been. "data.content" is a digest of the samples themselves, so files may move. A checkpoint
// without it is of an earlier Trireme: what it says is compared, and a warning tells that it does
// not say all. Throws Error(invalid_argument) that names each key with both values.
void require_same_data(const Json& was, const Json& now);

}  // namespace trireme
