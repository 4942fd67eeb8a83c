#include <trireme/data/service/hooks.h>

#include <mutex>
#include <utility>

namespace trireme::data {
namespace {

struct KnownHooks {
  std::mutex mutex;
  ServiceHooks hooks;
};
KnownHooks& known_hooks() {
  static KnownHooks only;
  return only;
}

}  // namespace

void set_service_hooks(ServiceHooks hooks) {
  const std::lock_guard lock(known_hooks().mutex);
  known_hooks().hooks = std::move(hooks);
}

ServiceHooks service_hooks() {
  const std::lock_guard lock(known_hooks().mutex);
  return known_hooks().hooks;
}

}  // namespace trireme::data
