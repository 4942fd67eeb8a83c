#include <trireme/base/error.h>
#include <trireme/comm/mpi/mpi_group.h>

namespace trireme::comm {
namespace {

Error lacking() {
  return Error(
      ErrorCode::unsupported, "comm", "this build has no MPI",
      "install libopenmpi-dev and build again, or comm.backend: auto with workers started "
      "by trireme or torchrun");
}

}  // namespace

bool mpi_is_compiled_in() { return false; }
std::string hand_out_by_mpi(const std::string&, int, int, Milliseconds) { throw lacking(); }
std::shared_ptr<Group> make_mpi_group(std::shared_ptr<membership::Member>, int, std::vector<int>,
                                      Milliseconds) {
  throw lacking();
}
void leave_mpi(Deadline) {}

}  // namespace trireme::comm
