// The identity of a process that its launcher numbers among all workers: `trireme launch`,
// torchrun, and mpirun of OpenMPI, MPICH or Intel MPI. resolve_identity() (identity.h) chooses.
// All throw Error(invalid_argument) naming the variable.
#pragma once
#include <trireme/base/environment.h>
#include <trireme/membership/identity.h>
#include <optional>

namespace trireme::membership {

// TRIREME_WORKER, TRIREME_WORKERS and the other variables of `trireme launch` (identity.h).
Identity from_trireme(const Environment& environment);
// RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_*.
Identity from_torchrun(const Environment& environment);
// OMPI_COMM_WORLD_*. The job is named by OMPI_MCA_ess_base_jobid, or by PMIX_NAMESPACE since
// OpenMPI 5.
Identity from_openmpi(const Environment& environment);
// PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS, of Hydra and of Intel MPI.
Identity from_mpich(const Environment& environment);

// TRIREME_ELASTIC and TRIREME_UNIT; empty if the job is not elastic.
std::optional<Elastic> elastic_from(const Environment& environment);

}  // namespace trireme::membership
