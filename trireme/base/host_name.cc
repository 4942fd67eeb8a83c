#include <trireme/base/host_name.h>
#include <unistd.h>

namespace trireme {

std::string own_host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace trireme
