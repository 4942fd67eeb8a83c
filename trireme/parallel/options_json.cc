#include <trireme/parallel/options_json.h>

// Each function takes its structure apart, so that a new field does not compile before it is here.
namespace trireme {

Json to_json(const plan::BucketOptions& options) {
  const auto& [capacity_bytes, first_bytes] = options;
  return {{"capacity_bytes", capacity_bytes}, {"first_bytes", first_bytes}};
}

Json to_json(const CompressionOptions& options) {
  const auto& [name, rank, ratio] = options;
  return {{"name", name}, {"rank", rank}, {"ratio", ratio}};
}

Json to_json(const LocalSgdOptions& options) {
  const auto& [steps, after, momentum] = options;
  return {{"steps", steps}, {"after", after}, {"momentum", momentum}};
}

Json to_json(const std::optional<GradScalerOptions>& options) {
  if (!options) return nullptr;
  const auto& [initial, growth, backoff, growth_interval] = *options;
  return {{"initial", initial},
          {"growth", growth},
          {"backoff", backoff},
          {"growth_interval", growth_interval}};
}

Json to_json(const DataParallelOptions& options) {
  const auto& [clip_norm, gradient_norm, share_parameters, guard, buckets, compression, local,
               virtual_shards, loss_scaling, accept] = options;
  const auto& [is_guarded, at_moment, lives] = guard;  // The latter two are for tests.
  return {{"clip_norm", clip_norm},
          {"gradient_norm", gradient_norm},
          {"share_parameters", share_parameters},
          {"guard", is_guarded},
          {"buckets", to_json(buckets)},
          {"compression", to_json(compression)},
          {"local", to_json(local)},
          {"virtual_shards", virtual_shards},
          {"loss_scaling", to_json(loss_scaling)},
          {"accept", static_cast<bool>(accept)}};
}

}  // namespace trireme
