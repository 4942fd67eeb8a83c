// The random numbers of a programme that sets no seed. LibTorch then seeds each process with
// another number, so the ranks of a job would draw other targets, or another order of their data.
#pragma once
#include <trireme/membership/identity.h>

namespace trireme::comm {

// Seeds the default generators with a number of the job, which is the same on all ranks and
// another one in each job. Does nothing if the programme has set a seed, or the process is alone.
void seed_by_job(const membership::Identity& identity);

}  // namespace trireme::comm
