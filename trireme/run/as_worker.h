// A programme of the user's own as the worker of `trireme`. No torch.
#pragma once
#include <string_view>

namespace trireme {

// The first line of main() in a programme that registers names (trireme/register.h). With it,
// model.library may name the programme itself: the commands of `trireme` start it where they would
// start their own worker, and this function then does the worker's work and ends the process. In
// every other process it returns at once. Link Trireme::worker.
void run_as_worker(int argc, char** argv);

// The first word of a programme that `trireme` starts so: this, and the name of the programme in
// whose place it is.
constexpr std::string_view kInPlaceOf = "--in-place-of-";

}  // namespace trireme
