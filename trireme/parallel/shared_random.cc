#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/base/log.h>
#include <trireme/parallel/shared_random.h>
#include <trireme/watch/phase_marks.h>
#include <string>
#include <utility>

namespace trireme {
namespace {

at::Tensor numbers_of(at::Generator& generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_numbers(at::Generator& generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

void draw_other_numbers_from(at::Generator generator, int rank, int number) {
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(
      mix64(generator.current_seed(), static_cast<uint64_t>(rank), static_cast<uint64_t>(number)));
}

std::string hex_of(const at::Tensor& bytes) {
  std::string text;
  const uint8_t* const byte = bytes.const_data_ptr<uint8_t>();
  for (int64_t i = 0; i < bytes.numel(); ++i) text += fmt::format("{:02x}", byte[i]);
  return text;
}

at::Tensor bytes_of_hex(const std::string& text) {
  at::Tensor bytes = at::empty({std::ssize(text) / 2}, at::kByte);
  for (int64_t i = 0; i < bytes.numel(); ++i)
    bytes.mutable_data_ptr<uint8_t>()[i] =
        static_cast<uint8_t>(std::stoi(text.substr(static_cast<size_t>(2 * i), 2), nullptr, 16));
  return bytes;
}

}  // namespace

void draw_other_numbers(at::Device device, int rank, int number) {
  if (rank == 0) return;
  draw_other_numbers_from(at::detail::getDefaultCPUGenerator(), rank, number);
  if (!device.is_cpu())
    draw_other_numbers_from(at::globalContext().defaultGenerator(device), rank, number);
}

SharedRandom::SharedRandom(World& world) : loop_(world.own_loop()), number_(loop_->loaders++) {}

std::string SharedRandom::run(const std::function<void()>& draws) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  if (const int now = world().identity().generation; std::exchange(generation_, now) != now)
    runs_ = 0;
  const std::string key = fmt::format("random numbers of loader {}, {}", number_, runs_++);
  if (world().rank() == 0) {
    static_cast<void>(watch::next_collective());  // The others count it too.
    const std::string numbers = hex_of(numbers_of(generator));
    if (world().size() > 1) world().set_value(key, numbers);
    draws();
    return numbers;
  }
  const watch::CollectiveMark mark(watch::kAgreement);
  const std::string numbers = world().get_value(key, Deadline::after(world().options().timeout));
  run_as(numbers, draws);
  return numbers;
}

void SharedRandom::run_as(const std::string& numbers, const std::function<void()>& draws) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor own = numbers_of(generator);
  set_numbers(generator, bytes_of_hex(numbers));
  draws();
  set_numbers(generator, own);
}

void check_batch(const World& world, int64_t batch) {
  if (batch < world.size())
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("a global batch of {} for {} ranks: some would get no sample", batch,
                            world.size()),
                fmt::format("a batch of {} or more, or fewer ranks", world.size()));
}

void SharedRandom::tell_left_out(int64_t samples) {
  if (std::exchange(told_, true) || world().rank() != 0) return;
  log_warning("the last batch of an epoch has {} samples, fewer than the {} ranks: it is left out",
              samples, world().size());
}

}  // namespace trireme
