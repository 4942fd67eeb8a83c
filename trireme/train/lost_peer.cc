#include <trireme/base/error.h>
#include <trireme/train/lost_peer.h>

namespace trireme {
namespace {

// Whether the exception was thrown by std::throw_with_nested() while one of a lost peer was
// handled.
bool carries_one_of_lost_peer(const std::exception& error, const World& world) {
  const auto* const nested = dynamic_cast<const std::nested_exception*>(&error);
  if (!nested || !nested->nested_ptr()) return false;  // To rethrow none would end the process.
  try {
    nested->rethrow_nested();
  } catch (const std::exception& inner) {
    return is_of_lost_peer(inner, world);
  } catch (...) {  // No loss throws it.
  }
  return false;
}

}  // namespace

bool is_of_lost_peer(const std::exception& error, const World& world) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  // All communication throws an Error. Any other exception is the programme's own, even right
  // after a loss, unless it carries an Error.
  if (!known) return carries_one_of_lost_peer(error, world);
  switch (known->code()) {
    case ErrorCode::peer_lost:
    case ErrorCode::timeout:
    case ErrorCode::aborted: return true;
    // No loss causes errors of these codes. All workers end with such an error, and the worker
    // that ended first already counts as lost.
    case ErrorCode::internal:
    case ErrorCode::corrupt: return false;
    default: return world.lost_a_worker();
  }
}

}  // namespace trireme
