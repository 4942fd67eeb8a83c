#include <trireme/tensor/interception.h>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

namespace trireme {
namespace {
thread_local int depth = 0;
}  // namespace

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

Interception::Interception() {
  if (depth++ == 0) c10::impl::tls_set_dispatch_key_included(kInterceptionKey, true);
}
Interception::~Interception() {
  if (--depth == 0) c10::impl::tls_set_dispatch_key_included(kInterceptionKey, false);
}

}  // namespace trireme
