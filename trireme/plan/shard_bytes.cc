#include <trireme/plan/shard_bytes.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <limits>

namespace trireme::plan {
namespace {

[[noreturn]] void refuse_sharded_bytes(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "plan", "sharded: " + what, remedy);
}

}  // namespace

std::string ShardedBytes::describe() const {
  return fmt::format("{}: parameters {}, gradients {}, optimizer state {}", format_bytes(total()),
                     format_bytes(parameters), format_bytes(gradients), format_bytes(optimizer));
}

Json ShardedBytes::to_json() const {
  return {{"parameters", parameters},
          {"gradients", gradients},
          {"optimizer", optimizer},
          {"total", total()}};
}

ShardedBytes sharded_bytes(int level, int ranks, int64_t parameters, const StateBytes& bytes) {
  if (level < 0 || level > 3) refuse_sharded_bytes(fmt::format("level {}", level), "0, 1, 2 or 3");
  if (ranks < 1) refuse_sharded_bytes(fmt::format("{} ranks", ranks), "at least 1");
  // The four numbers of bytes are few; 64 each is more than any dtype and optimizer have.
  for (const int64_t each : {bytes.parameter, bytes.gradient, bytes.optimizer, bytes.master})
    if (each < 0 || each > 64)
      refuse_sharded_bytes(fmt::format("{} bytes for each element", each), "0 to 64");
  if (parameters < 0 || parameters > std::numeric_limits<int64_t>::max() / 256)
    refuse_sharded_bytes(fmt::format("{} parameters", parameters),
                         "a number from 0 on whose bytes can be counted");
  const int64_t shard = parameters / ranks + (parameters % ranks > 0 ? 1 : 0);
  return {(level >= 3 ? shard : parameters) * bytes.parameter,
          (level >= 2 ? shard : parameters) * bytes.gradient,
          (level >= 1 ? shard : parameters) * (bytes.optimizer + bytes.master)};
}

}  // namespace trireme::plan
