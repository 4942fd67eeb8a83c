#include <trireme/capi/trireme_c.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/version.h>

#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/version.h>
#include <trireme/comm/world.h>
#include <trireme/plan/data_plan.h>
#include <unistd.h>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

using trireme::Error;
using trireme::ErrorCode;

struct trireme_world {
  trireme::World world;
};

namespace {

thread_local std::string last_error;

// The worlds that the programme has not freed. Their threads may not run while the process
// destroys its globals, so they end first when the programme returns from main or calls exit().
// For the other workers this process is then lost, unless it has left.
class Living {
 public:
  static Living& of_process() {
    // Never destroyed: exit() may come to it at any time.
    static Living* const only = [] {
      std::atexit([] { of_process().end_all(); });
      return new Living;
    }();
    return *only;
  }
  void add(trireme_world* world) {
    const std::lock_guard lock(mutex_);
    all_.insert(world);
  }
  // Whether the world was still there, and is now the caller's to delete.
  bool remove(trireme_world* world) {
    const std::lock_guard lock(mutex_);
    return all_.erase(world) == 1;
  }

 private:
  // A process that was forked has no threads of its own.
  void end_all() {
    if (getpid() != owner_) return;
    const std::lock_guard lock(mutex_);
    for (trireme_world* const world : all_) delete world;
    all_.clear();
  }
  const pid_t owner_ = getpid();
  std::mutex mutex_;
  std::set<trireme_world*> all_;
};

trireme_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return TRIREME_INVALID_ARGUMENT;
    case ErrorCode::not_found: return TRIREME_NOT_FOUND;
    case ErrorCode::unsupported: return TRIREME_UNSUPPORTED;
    case ErrorCode::timeout: return TRIREME_TIMEOUT;
    case ErrorCode::peer_lost: return TRIREME_PEER_LOST;
    case ErrorCode::aborted: return TRIREME_ABORTED;
    case ErrorCode::corrupt: return TRIREME_CORRUPT;
    case ErrorCode::io: return TRIREME_IO;
    case ErrorCode::internal: return TRIREME_INTERNAL;
  }
  return TRIREME_INTERNAL;
}

ErrorCode code_of(trireme_status status) {
  switch (status) {
    case TRIREME_INVALID_ARGUMENT: return ErrorCode::invalid_argument;
    case TRIREME_NOT_FOUND: return ErrorCode::not_found;
    case TRIREME_UNSUPPORTED: return ErrorCode::unsupported;
    case TRIREME_TIMEOUT: return ErrorCode::timeout;
    case TRIREME_PEER_LOST: return ErrorCode::peer_lost;
    case TRIREME_ABORTED: return ErrorCode::aborted;
    case TRIREME_CORRUPT: return ErrorCode::corrupt;
    case TRIREME_IO: return ErrorCode::io;
    case TRIREME_OK:
    case TRIREME_INTERNAL: break;
  }
  return ErrorCode::internal;
}

// No exception may cross into another language.
template <typename Body>
trireme_status guarded(const Body& body) {
  try {
    const at::NoGradGuard no_grad;
    body();
    return TRIREME_OK;
  } catch (const Error& error) {
    last_error = error.what();
    return status_of(error.code());
  } catch (const std::exception& error) {
    last_error = error.what();
    return TRIREME_INTERNAL;
  }
}

Error refused(const std::string& what, const std::string& remedy) {
  return Error(ErrorCode::invalid_argument, "capi", what, remedy);
}

template <typename Handle>
Handle& given(Handle* handle, const char* name) {
  if (!handle) throw refused(fmt::format("{} is NULL", name), "what the library has made");
  return *handle;
}

at::ScalarType type_of(const trireme_tensor& tensor, const std::string& name) {
  constexpr int kSigned = 0, kUnsigned = 1, kFloat = 2, kBfloat = 4;
  const int code = tensor.dtype.code, bits = tensor.dtype.bits;
  if (tensor.dtype.lanes == 1) {
    if (code == kFloat && bits == 32) return at::kFloat;
    if (code == kFloat && bits == 64) return at::kDouble;
    if (code == kFloat && bits == 16) return at::kHalf;
    if (code == kBfloat && bits == 16) return at::kBFloat16;
    if (code == kSigned && bits == 32) return at::kInt;
    if (code == kSigned && bits == 64) return at::kLong;
    if (code == kUnsigned && bits == 8) return at::kByte;
  }
  throw refused(fmt::format("{} has the type code {} with {} bits and {} lanes", name, code, bits,
                            tensor.dtype.lanes),
                "float16, float32, float64, bfloat16, int32, int64 or uint8, one lane");
}

// A view of the caller's memory.
at::Tensor view_of(const trireme_tensor* tensor, const std::string& name) {
  given(tensor, name.c_str());
  constexpr int kCpu = 1;
  if (tensor->device.device_type != kCpu)
    throw refused(fmt::format("{} is on a device of type {}", name, tensor->device.device_type),
                  "a tensor in the CPU's memory (type 1)");
  const at::ScalarType type = type_of(*tensor, name);
  std::vector<int64_t> shape;
  int64_t elements = 1;
  for (int i = 0; i < tensor->ndim; ++i) {
    shape.push_back(tensor->shape[i]);
    if (shape.back() < 0) throw refused(name + " has a negative size", "sizes of 0 or more");
    elements *= shape.back();
  }
  int64_t expected = 1;
  for (int i = tensor->ndim - 1; tensor->strides && i >= 0; --i) {
    if (shape[static_cast<size_t>(i)] != 1 && tensor->strides[i] != expected)
      throw refused(name + " is not contiguous", "a contiguous copy");
    expected *= shape[static_cast<size_t>(i)];
  }
  if (!tensor->data && elements > 0) throw refused(name + " has no data", "a pointer to its data");
  return at::from_blob(static_cast<char*>(tensor->data) + tensor->byte_offset, shape,
                       at::TensorOptions().dtype(type));
}

trireme::ReduceOp op_of(trireme_op op) {
  switch (op) {
    case TRIREME_SUM: return trireme::ReduceOp::sum;
    case TRIREME_MEAN: return trireme::ReduceOp::mean;
    case TRIREME_MAX: return trireme::ReduceOp::max;
    case TRIREME_MIN: return trireme::ReduceOp::min;
  }
  throw refused(fmt::format("there is no operation {}", static_cast<int>(op)),
                "TRIREME_SUM, TRIREME_MEAN, TRIREME_MAX or TRIREME_MIN");
}

}  // namespace

// The gradients of one type travel in one tensor. The samples travel before them, as float64, so
// that the sum of gradients is the mean: a sum over samples may be too large for float16.
struct trireme_gradients {
  struct Place {
    std::string name;
    std::vector<int64_t> shape;
    at::ScalarType type = at::kFloat;
    int64_t offset = 0;
  };
  trireme::World& world;
  std::vector<Place> places;
  std::map<at::ScalarType, at::Tensor> flats;

  trireme_gradients(trireme::World& the_world, const trireme_tensor* const* parameters,
                    const char* const* names, int32_t count)
      : world(the_world) {
    if (count < 1) throw refused(fmt::format("{} parameters", count), "1 or more");
    std::map<std::string, std::string> facts;
    std::map<at::ScalarType, int64_t> sizes;
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < count; ++i) {
      const std::string name = names && names[i] ? names[i] : fmt::format("parameter {}", i);
      const at::Tensor tensor = view_of(parameters ? parameters[i] : nullptr, name);
      if (!tensor.is_floating_point())
        throw refused(fmt::format("{} is of {}, which has no gradients", name,
                                  c10::toString(tensor.scalar_type())),
                      "parameters of a floating-point type");
      places.push_back(
          {name, tensor.sizes().vec(), tensor.scalar_type(), sizes[tensor.scalar_type()]});
      sizes[tensor.scalar_type()] += tensor.numel();
      facts[fmt::format("{:06}", i)] =
          fmt::format("{}: {} [{}]", name, c10::toString(tensor.scalar_type()),
                      fmt::join(tensor.sizes(), ", "));
      tensors.push_back(tensor);
    }
    world.agree("parameters", facts);
    for (const auto& [type, size] : sizes)
      flats[type] = at::zeros({size}, at::TensorOptions().dtype(type));
    for (const at::Tensor& tensor : tensors) world.loop_group()->broadcast(tensor, 0);
  }

  void reduce(const trireme_tensor* const* tensors, int64_t samples) {
    if (samples < 1)
      throw refused(fmt::format("{} samples", samples), "the number in the mean, 1 or more");
    std::vector<std::optional<at::Tensor>> views;
    for (size_t i = 0; i < places.size(); ++i) {
      const Place& place = places[i];
      views.emplace_back();
      if (!tensors || !tensors[i]) continue;
      views[i] = view_of(tensors[i], "the gradient of " + place.name);
      if (views[i]->sizes().vec() != place.shape || views[i]->scalar_type() != place.type)
        throw refused(fmt::format("the gradient of {} has the shape [{}]", place.name,
                                  fmt::join(views[i]->sizes(), ", ")),
                      fmt::format("the parameter's form, [{}]", fmt::join(place.shape, ", ")));
    }
    trireme::Group& group = *world.loop_group();
    at::Tensor total = at::full({1}, static_cast<double>(samples), at::kDouble);
    group.all_reduce(total);
    const double weight = static_cast<double>(samples) / total.item<double>();
    for (size_t i = 0; i < places.size(); ++i) {
      const at::Tensor flat = part(places[i]);
      if (views[i])
        flat.copy_(views[i]->reshape({-1})).mul_(weight);
      else
        flat.zero_();
    }
    for (const auto& [type, flat] : flats) group.all_reduce(flat);
    for (size_t i = 0; i < places.size(); ++i)
      if (views[i]) views[i]->reshape({-1}).copy_(part(places[i]));
  }

  at::Tensor part(const Place& place) const {
    int64_t elements = 1;
    for (const int64_t size : place.shape) elements *= size;
    return flats.at(place.type).narrow(0, place.offset, elements);
  }
};

extern "C" {

const char* trireme_last_error(void) { return last_error.c_str(); }
int trireme_exit_code(trireme_status status) {
  return status == TRIREME_OK ? 0 : trireme::exit_code_of(Error(code_of(status), "capi", ""));
}
const char* trireme_version(void) {
  static const std::string text(trireme::version());
  return text.c_str();
}
const char* trireme_torch_version(void) { return TORCH_VERSION; }

trireme_status trireme_world_join(trireme_world** world) {
  return guarded([&] {
    given(world, "the place for the world");
    auto made = std::make_unique<trireme_world>(trireme_world{trireme::World::join()});
    made->world.connect();
    *world = made.release();
    Living::of_process().add(*world);
  });
}
int trireme_world_rank(const trireme_world* world) { return world ? world->world.rank() : -1; }
int trireme_world_size(const trireme_world* world) { return world ? world->world.size() : -1; }
trireme_status trireme_world_share(trireme_world* world, int64_t batch, int64_t* first,
                                   int64_t* count) {
  return guarded([&] {
    trireme::World& all = given(world, "the world").world;
    given(count, "the place for the count") = all.share(batch);
    if (first) *first = trireme::plan::DataPlan::share(batch, all.rank(), all.size()).first;
  });
}
trireme_status trireme_world_leave(trireme_world* world) {
  return guarded([&] { given(world, "the world").world.leave(); });
}
void trireme_world_free(trireme_world* world) {
  // It may have ended by itself, when the process began to end.
  if (Living::of_process().remove(world)) delete world;
}

trireme_status trireme_all_reduce(trireme_world* world, const trireme_tensor* tensor,
                                  trireme_op op) {
  return guarded([&] {
    given(world, "the world")
        .world.loop_group()
        ->all_reduce(view_of(tensor, "the tensor"), op_of(op));
  });
}
trireme_status trireme_broadcast(trireme_world* world, const trireme_tensor* tensor, int root) {
  return guarded([&] {
    given(world, "the world").world.loop_group()->broadcast(view_of(tensor, "the tensor"), root);
  });
}
trireme_status trireme_all_gather(trireme_world* world, const trireme_tensor* own,
                                  const trireme_tensor* all) {
  return guarded([&] {
    given(world, "the world")
        .world.loop_group()
        ->all_gather(view_of(own, "the own tensor"), view_of(all, "the tensor of all"));
  });
}
trireme_status trireme_barrier(trireme_world* world) {
  return guarded([&] { given(world, "the world").world.loop_group()->barrier(); });
}

trireme_status trireme_gradients_new(trireme_world* world, const trireme_tensor* const* parameters,
                                     const char* const* names, int32_t count,
                                     trireme_gradients** gradients) {
  return guarded([&] {
    given(gradients, "the place for the gradients") = nullptr;
    *gradients = new trireme_gradients(given(world, "the world").world, parameters, names, count);
  });
}
trireme_status trireme_gradients_reduce(trireme_gradients* gradients,
                                        const trireme_tensor* const* tensors, int64_t samples) {
  return guarded([&] { given(gradients, "the gradients").reduce(tensors, samples); });
}
void trireme_gradients_free(trireme_gradients* gradients) { delete gradients; }

}  // extern "C"
