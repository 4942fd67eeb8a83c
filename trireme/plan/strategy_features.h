// The options that a strategy honours.
#pragma once

namespace trireme::plan {

// The abilities of a strategy besides plain steps. `trireme plan` and the Trainer refuse an option
// for which the strategy has a false here (train/trainer_rules.cc).
struct StrategyFeatures {
  bool clip_norm = false;  // Also gradient_norm and accept (guard.policy, guard.spike).
  bool compression = false;
  bool local_steps = false;
  bool virtual_shards = false;
  bool loss_scaling = false;  // With it, parameters of 16 bits.
  bool sync_batch_norm = false;
  bool memory = false;   // Follows EngineSetting::memory, as to activations.
  bool offload = false;  // Follows MemoryOptions::offload.
  // The ranks are equal after each step, so that guard.check_replicas_every can compare them, and
  // each of them has the whole state.
  bool equal_replicas = true;
  bool averages = true;  // train.ema_decay
  bool divides = false;  // The mesh, the pipeline and the shards of the options.
  bool servers = false;  // Parameter servers have the model (--ps).
};

}  // namespace trireme::plan
