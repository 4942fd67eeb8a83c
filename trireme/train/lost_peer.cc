#include <trireme/base/error.h>
#include <trireme/train/lost_peer.h>

namespace trireme {

bool is_of_lost_peer(const std::exception& error, const World& world) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  if (known && (known->code() == ErrorCode::peer_lost || known->code() == ErrorCode::timeout ||
                known->code() == ErrorCode::aborted))
    return true;
  // No loss causes errors of these codes. All workers end with such an error, and the worker that
  // ended first already counts as lost.
  if (known && (known->code() == ErrorCode::internal || known->code() == ErrorCode::corrupt))
    return false;
  return world.lost_a_worker();
}

}  // namespace trireme
