#include <trireme/base/error.h>
#include <trireme/comm/gloo/gloo_group.h>

namespace trireme::comm {

std::shared_ptr<Group> make_gloo_group(std::shared_ptr<membership::Member>, int, int,
                                       const GlooOptions&) {
  throw Error(
      ErrorCode::unsupported, "comm",
      "this build has no Gloo, so processes cannot exchange tensors",
      "install libgloo-dev and build again, or train in threads (strategy.name: mirrored)");
}
bool gloo_is_compiled_in() { return false; }

}  // namespace trireme::comm
