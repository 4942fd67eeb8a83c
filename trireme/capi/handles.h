// The common part of the library's functions: handles, errors as codes, tensors.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <trireme/base/error.h>
#include <trireme/capi/trireme_c.h>
#include <trireme/comm/world.h>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace trireme::capi {

// An object that was made from a world and has groups of its own. In a new generation of a job
// all ranks make these groups again, in the order in which the objects were made.
class Bound {
 public:
  virtual ~Bound() = default;
  virtual void bind() = 0;    // COLLECTIVE.
  virtual void unbind() = 0;  // The world ends, or has no groups for now. Never communicates.
};

// An outcome of the job that is no error, and that ends a loop.
struct Outcome {
  trireme_status status;
  std::string message;
};

std::string& last_error();  // That of the calling thread.
trireme_status status_of(ErrorCode code);
ErrorCode code_of(trireme_status status);
Error refused(const std::string& what, const std::string& remedy);
// A view of the caller's memory. Throws Error(invalid_argument) that begins with `name`.
at::Tensor view_of(const trireme_tensor* tensor, const std::string& name);
std::string form_of(const at::Tensor& tensor);  // "Double [2, 3]"

// No exception may cross into another language.
template <typename Body>
trireme_status guarded(const Body& body) {
  try {
    const at::NoGradGuard no_grad;
    body();
    return TRIREME_OK;
  } catch (const Outcome& outcome) {
    last_error() = outcome.message;
    return outcome.status;
  } catch (const Error& error) {
    last_error() = error.what();
    return status_of(error.code());
  } catch (const std::exception& error) {
    last_error() = error.what();
    return TRIREME_INTERNAL;
  }
}

template <typename Handle>
Handle& given(Handle* handle, const char* name) {
  if (!handle) throw refused(std::string(name) + " is NULL", "what the library has made");
  return *handle;
}

}  // namespace trireme::capi

struct trireme_world {
  trireme::World world;
  // The objects that have not been freed, in the order of their making. They may outlive the
  // world: a language with a garbage collector frees in any order.
  std::shared_ptr<std::vector<trireme::capi::Bound*>> bound =
      std::make_shared<std::vector<trireme::capi::Bound*>>();

  explicit trireme_world(trireme::World the_world) : world(std::move(the_world)) {}
  ~trireme_world() {
    for (trireme::capi::Bound* const each : *bound) each->unbind();
  }
  trireme_world(const trireme_world&) = delete;
};
