#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/HPUHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "stand_in_device.h"

#include <sys/mman.h>
#include <unistd.h>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace trireme::tests {
namespace {

std::atomic<int>& count_of_devices() {
  static std::atomic<int> count{[] {
    const char* const text = std::getenv("TRIREME_TEST_DEVICES");
    return text ? std::atoi(text) : 0;
  }()};
  return count;
}

thread_local c10::DeviceIndex current_device = 0;

// The memory of all devices: one file that is mapped twice. Blocks are never given back to it, but
// to a list of free blocks of their size.
class DeviceMemory {
 public:
  static DeviceMemory& get() {
    static auto* const memory = new DeviceMemory;  // Tensors may live until the process ends.
    return *memory;
  }

  void* take(size_t bytes) {
    const size_t size = size_of_block(bytes);
    const std::lock_guard lock(mutex_);
    auto& free = free_[size];
    size_t offset = 0;
    if (!free.empty()) {
      offset = free.back();
      free.pop_back();
    } else {
      TORCH_CHECK(end_ + size <= kBytes, "the stand-in device has no more memory");
      offset = end_;
      end_ += size;
    }
    size_at_[offset] = size;
    // A kernel that reads what nothing has written shows.
    std::memset(bytes_ + offset, 0xff, size);
    return addresses_ + offset;
  }
  void give_back(void* address) {
    const std::lock_guard lock(mutex_);
    const auto offset = static_cast<size_t>(static_cast<char*>(address) - addresses_);
    free_[size_at_.at(offset)].push_back(offset);
  }
  // The bytes at an address of the device, for its copies and operations alone.
  void* behind(const void* address) const {
    return bytes_ + (static_cast<const char*>(address) - addresses_);
  }

 private:
  static constexpr size_t kBytes = size_t{4} << 30, kLeast = 64;

  DeviceMemory() {
    const int file = ::memfd_create("stand-in device", MFD_CLOEXEC);
    TORCH_CHECK(file >= 0 && ::ftruncate(file, kBytes) == 0, "no memory for a stand-in device");
    bytes_ = map(PROT_READ | PROT_WRITE, file);
    addresses_ = map(PROT_NONE, file);
    ::close(file);
  }
  static char* map(int protection, int file) {
    void* const at = ::mmap(nullptr, kBytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    TORCH_CHECK(at != MAP_FAILED, "no addresses for a stand-in device");
    return static_cast<char*>(at);
  }
  static size_t size_of_block(size_t bytes) {
    size_t size = kLeast;
    while (size < bytes) size *= 2;
    return size;
  }

  std::mutex mutex_;
  char *bytes_ = nullptr, *addresses_ = nullptr;
  size_t end_ = 0;
  std::map<size_t, std::vector<size_t>> free_;
  std::map<size_t, size_t> size_at_;
};

void free_block(void* address) { DeviceMemory::get().give_back(address); }

class DeviceAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(kStandIn, current_device);
    if (bytes == 0) return {nullptr, device};
    void* const address = DeviceMemory::get().take(bytes);
    return {address, address, &free_block, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    const DeviceMemory& memory = DeviceMemory::get();
    std::memcpy(memory.behind(to), memory.behind(from), bytes);
  }
};
DeviceAllocator& allocator() {
  static auto* const made = new DeviceAllocator;
  return *made;
}

// The numbers of each device, as the CPU draws them.
const at::Generator& generator_of(c10::DeviceIndex device) {
  static auto* const generators = [] {
    auto* const all = new std::vector<at::Generator>;
    for (int i = 0; i < 64; ++i) all->push_back(at::detail::createCPUGenerator());
    return all;
  }();
  return generators->at(static_cast<size_t>(std::max<c10::DeviceIndex>(0, device)));
}

struct DeviceGuard : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kStandIn; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kStandIn, current_device}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(!device.has_index() || device.index() < deviceCount(), "there is no ", device);
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) current_device = device.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(count_of_devices().load());
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(c10::DeviceIndex) const override {}
};
C10_REGISTER_GUARD_IMPL(HPU, DeviceGuard)

// Autograd's engine asks the hooks of a device for its streams.
struct DeviceHooks : at::HPUHooksInterface {
  explicit DeviceHooks(at::HPUHooksArgs) {}
  void init() const override {}
  // LibTorch allows one accelerator. One that is built for CUDA has it, also without a GPU.
  bool isBuilt() const override {
    return isAvailable() && !at::detail::getCUDAHooks().hasCUDART();
  }
  bool isAvailable() const override { return count_of_devices() > 0; }
  bool hasHPU() const override { return isBuilt(); }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return isAvailable(); }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(count_of_devices().load());
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return generator_of(device);
  }
  void setCurrentDevice(c10::DeviceIndex device) const override { current_device = device; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return std::exchange(current_device, device);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
};
using at::HPUHooksRegistry;
using at::RegistererHPUHooksRegistry;
C10_REGISTER_CLASS(HPUHooksRegistry, HPUHooks, DeviceHooks)

// The same bytes as a tensor of the host.
at::Tensor behind(const at::Tensor& tensor) {
  if (tensor.device().type() != kStandIn) return tensor;
  const auto options = tensor.options().device(at::kCPU).requires_grad(false);
  if (tensor.numel() == 0) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  return at::from_blob(DeviceMemory::get().behind(tensor.const_data_ptr()), tensor.sizes(),
                       tensor.strides(), options);
}

c10::DispatchKeySet keys() { return c10::DispatchKeySet(c10::DispatchKey::HPU); }

// Takes the device, or the current one.
struct OnDevice {
  explicit OnDevice(std::optional<at::Device> device) : before(current_device) {
    const c10::DeviceIndex index = device && device->has_index() ? device->index() : before;
    TORCH_CHECK(index < count_of_devices(), "there is no hpu:", static_cast<int>(index), ": ",
                count_of_devices().load(), " devices");
    current_device = index;
  }
  ~OnDevice() { current_device = before; }
  const c10::DeviceIndex before;
};

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const OnDevice guard(device);
  return at::detail::empty_generic(size, &allocator(), keys(), c10::dtype_or_default(dtype),
                                   format);
}
at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const OnDevice guard(device);
  return at::detail::empty_strided_generic(size, stride, &allocator(), keys(),
                                           c10::dtype_or_default(dtype));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  behind(to).copy_(behind(from));
  return to;
}

const at::Tensor& resize_memory(const at::Tensor& self, at::IntArrayRef size,
                                std::optional<at::MemoryFormat>) {
  auto* const impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  const size_t needed = (static_cast<size_t>(self.storage_offset() + self.numel())) *
                        static_cast<size_t>(self.element_size());
  auto* const storage = self.storage().unsafeGetStorageImpl();
  if (self.numel() == 0 || needed <= storage->nbytes()) return self;
  const OnDevice guard(self.device());
  at::DataPtr memory = allocator().allocate(needed);
  if (storage->nbytes() > 0)
    allocator().copy_data(memory.get(), storage->data(), storage->nbytes());
  storage->set_data_ptr_noswap(std::move(memory));
  storage->set_nbytes(needed);
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (from.sizes() != to.sizes()) resize_memory(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage, int64_t offset,
                        at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(storage), offset, size, stride);
}

// The two operations for which LibTorch's fallback has no kernel of the CPU.
at::Tensor convolve(const at::Tensor& input, const at::Tensor& weight,
                    const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                    at::IntArrayRef output_padding, int64_t groups) {
  const auto own_bias = bias && bias->defined() ? std::optional(behind(*bias)) : std::nullopt;
  return at::convolution(behind(input), behind(weight), own_bias, stride, padding, dilation,
                         transposed, output_padding, groups)
      .to(input.device());
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> convolve_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> wanted) {
  auto [of_input, of_weight, of_bias] = at::convolution_backward(
      behind(gradient), behind(input), behind(weight), at::IntArrayRef({weight.size(0)}), stride,
      padding, dilation, transposed, output_padding, groups, wanted);
  for (at::Tensor* const each : {&of_input, &of_weight, &of_bias})
    if (each->defined()) *each = each->to(input.device());
  return {of_input, of_weight, of_bias};
}

std::optional<at::Tensor> behind(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? std::optional(behind(*tensor)) : std::nullopt;
}

// It writes running statistics, of which its schema says nothing.
std::tuple<at::Tensor, at::Tensor, at::Tensor> normalise(
    const at::Tensor& input, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& running_mean,
    const std::optional<at::Tensor>& running_var, bool training, double momentum, double eps) {
  const auto [output, mean, deviation] =
      at::native_batch_norm(behind(input), behind(weight), behind(bias), behind(running_mean),
                            behind(running_var), training, momentum, eps);
  return {output.to(input.device()), mean.to(input.device()), deviation.to(input.device())};
}

// Operations of a device draw from its generator.
void on_the_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i)
    if (c10::IValue& value = (*stack)[first + i];
        arguments[i].name() == "generator" && value.isNone())
      value = generator_of(current_device);
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, HPU, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("resize_", &resize_memory);
  m.impl("view", [](const at::Tensor& self, at::IntArrayRef size) {
    return at::native::view(self, size);
  });
  m.impl("as_strided", [](const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                          std::optional<int64_t> offset) {
    return at::native::as_strided_tensorimpl(self, size, stride, offset);
  });
  m.impl("_reshape_alias",
         [](const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
           return at::native::_reshape_alias(self, size, stride);
         });
  m.impl("convolution_overrideable", &convolve);
  m.impl("convolution_backward_overrideable", &convolve_backward);
  m.impl("native_batch_norm", &normalise);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Tensor", [](at::Tensor& self, const at::Tensor& source) -> at::Tensor& {
    return at::native::set_tensor_(self, source);
  });
}
TORCH_LIBRARY_IMPL(_, HPU, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_cpu>());
}

}  // namespace

int stand_in_devices() { return count_of_devices(); }
void set_stand_in_devices(int count) { count_of_devices() = count; }

}  // namespace trireme::tests
