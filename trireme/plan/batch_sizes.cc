#include <trireme/plan/batch_sizes.h>

#include <fmt/format.h>
#include <trireme/base/error.h>

namespace trireme::plan {
namespace {

[[noreturn]] void refuse_batch_sizes(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "plan", what, remedy);
}

int64_t parts_of_size(int64_t whole, int64_t size) {
  return whole / size + (whole % size > 0 ? 1 : 0);
}

int64_t samples_of(const BatchSizes& sizes) {
  int64_t result = 0;
  if (__builtin_mul_overflow(sizes.micro, sizes.accumulate, &result) ||
      __builtin_mul_overflow(result, sizes.replicas, &result))
    refuse_batch_sizes(fmt::format("{} samples x {} micro-batches x {} replicas are too many",
                                   sizes.micro, sizes.accumulate, sizes.replicas),
                       "smaller sizes");
  return result;
}

}  // namespace

bool BatchSizes::even() const {
  return accumulate > 0 && replicas > 0 && global % replicas == 0 &&
         global / replicas % accumulate == 0 && global / replicas / accumulate == micro;
}

std::string BatchSizes::describe() const {
  return fmt::format("{} samples: {} x {} micro-batch{} x {} replica{}{}", global, micro,
                     accumulate, accumulate == 1 ? "" : "es", replicas, replicas == 1 ? "" : "s",
                     even() ? "" : ", the last ones smaller");
}

Json BatchSizes::to_json() const {
  return {
      {"global", global}, {"micro", micro}, {"accumulate", accumulate}, {"replicas", replicas}};
}

BatchSizes batch_sizes(BatchSizes given) {
  if (given.replicas < 1)
    refuse_batch_sizes(fmt::format("{} replicas", given.replicas), "at least 1");
  if (given.global < 0 || given.micro < 0 || given.accumulate < 0)
    refuse_batch_sizes(fmt::format("the sizes are global {}, micro {}, accumulate {}",
                                   given.global, given.micro, given.accumulate),
                       "numbers from 1 on, and 0 where a size is asked for");
  if (given.global == 0 && given.micro == 0)
    refuse_batch_sizes("neither the global batch nor the micro-batch has a size",
                       "two of global, micro and accumulate");
  BatchSizes sizes = given;
  if (sizes.accumulate == 0 && (sizes.global == 0 || sizes.micro == 0)) sizes.accumulate = 1;
  if (sizes.global == 0) {
    sizes.global = samples_of(sizes);
    return sizes;
  }
  const int64_t share = parts_of_size(sizes.global, sizes.replicas);
  if (sizes.micro == 0) sizes.micro = parts_of_size(share, sizes.accumulate);
  if (sizes.accumulate == 0) sizes.accumulate = parts_of_size(share, sizes.micro);
  if (sizes.global / sizes.replicas < sizes.accumulate)
    refuse_batch_sizes(
        fmt::format("a global batch of {} samples has none for some of the {} micro-batches of {} "
                    "replicas",
                    sizes.global, sizes.accumulate, sizes.replicas),
        fmt::format("a global batch of at least {} samples",
                    samples_of({0, 1, sizes.accumulate, sizes.replicas})));
  if (given.micro > 0 && given.accumulate > 0 &&
      parts_of_size(share, sizes.micro) != sizes.accumulate)
    refuse_batch_sizes(
        fmt::format("a global batch of {} samples is not {} samples x {} micro-batches x {} "
                    "replicas, which are {}",
                    sizes.global, sizes.micro, sizes.accumulate, sizes.replicas,
                    samples_of(sizes)),
        fmt::format("accumulate {}, or no value for one of the three",
                    parts_of_size(share, sizes.micro)));
  return sizes;
}

}  // namespace trireme::plan
