#include <trireme/cli/config_keys.h>

namespace trireme::cli {
namespace {

#define TRIREME_SLOT(member) [](Config& c) -> Slot { return &c.member; }

Range at_least(double least) { return {.least = least}; }
Range count_from(double least) { return {.least = least, .most = kLargestInt}; }
Range from_to(double least, double most) { return {.least = least, .most = most}; }
Range from_below(double least, double most) {
  return {.least = least, .most = most, .most_excluded = true};
}
Range above(double least) { return {.least = least, .least_excluded = true}; }

}  // namespace

// clang-format off
std::vector<Key> make_key_table() {
  const OnlyFor mlp{"model.name", {"mlp"}}, cnn{"model.name", {"cnn"}}, gpt{"model.name", {"gpt"}};
  const OnlyFor drops_out{"model.name", {"mlp", "cnn", "tiny", "mlpbig"}};
  const OnlyFor idx{"data.name", {"idx"}}, text{"data.name", {"text"}}, images{"data.name", {"digits", "idx"}};
  const OnlyFor resnet{"model.name", {"resnet18", "resnet50"}};
  const OnlyFor adam{"optimizer.name", {"adam", "adamw", "lamb"}};
  return {
    {.name = "model.name", .kind = Kind::choice, .slot = TRIREME_SLOT(model.name), .meaning = "The model (docs/models.md).",
     .choices = {"mlp", "cnn", "gpt", "resnet18", "resnet50", "tiny", "mlpbig"}},
    {.name = "model.hidden", .kind = Kind::list, .slot = TRIREME_SLOT(model.hidden), .meaning = "mlp: widths of the hidden layers; auto: 1024, 1024, 1024.",
     .range = at_least(1), .only_for = mlp},
    {.name = "model.channels", .kind = Kind::list, .slot = TRIREME_SLOT(model.channels), .meaning = "cnn: output channels of each 3x3 convolution; auto: the six of the preset.",
     .range = at_least(1), .only_for = cnn},
    {.name = "model.strides", .kind = Kind::list, .slot = TRIREME_SLOT(model.strides), .meaning = "cnn: stride of each convolution; auto: 1 each, or the preset's.",
     .range = at_least(1), .only_for = cnn},
    {.name = "model.batch_norm", .kind = Kind::flag, .slot = TRIREME_SLOT(model.batch_norm), .meaning = "cnn: batch norm after each convolution; auto: true.",
     .automatic = -1, .only_for = cnn},
    {.name = "model.dropout", .kind = Kind::number, .slot = TRIREME_SLOT(model.dropout), .meaning = "mlp, cnn: fraction of the values that are dropped before the last layer.",
     .range = from_below(0, 1), .only_for = drops_out},
    {.name = "model.layers", .kind = Kind::whole, .slot = TRIREME_SLOT(model.layers), .meaning = "gpt: blocks; auto: 6.",
     .range = at_least(1), .automatic = -1, .only_for = gpt},
    {.name = "model.width", .kind = Kind::whole, .slot = TRIREME_SLOT(model.width), .meaning = "gpt: size of each token's vector; auto: 256.",
     .range = at_least(1), .automatic = -1, .only_for = gpt},
    {.name = "model.heads", .kind = Kind::whole, .slot = TRIREME_SLOT(model.heads), .meaning = "gpt: attention heads, a divisor of the width; auto: 8.",
     .range = at_least(1), .automatic = -1, .only_for = gpt},
    {.name = "model.vocabulary", .kind = Kind::whole, .slot = TRIREME_SLOT(model.vocabulary), .meaning = "gpt: number of different tokens; auto: as many as the text has, or 8192.",
     .range = at_least(1), .automatic = -1, .only_for = gpt},
    {.name = "model.context", .kind = Kind::whole, .slot = TRIREME_SLOT(model.context), .meaning = "gpt: the most tokens in one sample; auto: data.block, or 128.",
     .range = at_least(1), .automatic = -1, .only_for = gpt},
    {.name = "model.zero_init", .kind = Kind::flag, .slot = TRIREME_SLOT(model.zero_init), .meaning = "resnet: the last batch norm of each block starts from 0, so that the block starts as the identity; auto: false.",
     .automatic = -1, .only_for = resnet},

    {.name = "data.name", .kind = Kind::choice, .slot = TRIREME_SLOT(data.name), .meaning = "The data set: digits (ships with Trireme), idx (MNIST's file format) or text (any text file, for gpt).",
     .choices = {"digits", "idx", "text"}},
    {.name = "data.path", .kind = Kind::text, .slot = TRIREME_SLOT(data.path), .meaning = "digits: its file; empty: the one that ships. idx: the folder that holds the files under their usual names. text: the file, plain or gzip."},
    {.name = "data.tokens", .kind = Kind::choice, .slot = TRIREME_SLOT(data.tokens), .meaning = "text: a token is a character that occurs in the text (UTF-8), or a byte (256 tokens).",
     .choices = {"characters", "bytes"}, .only_for = text},
    {.name = "data.block", .kind = Kind::whole, .slot = TRIREME_SLOT(data.block), .meaning = "text: tokens in a sample.", .range = at_least(1), .only_for = text},
    {.name = "data.images", .kind = Kind::text, .slot = TRIREME_SLOT(data.images), .meaning = "idx: file of the training images, plain or gzip.", .only_for = idx},
    {.name = "data.labels", .kind = Kind::text, .slot = TRIREME_SLOT(data.labels), .meaning = "idx: file of the training labels.", .only_for = idx},
    {.name = "data.test_images", .kind = Kind::text, .slot = TRIREME_SLOT(data.test_images), .meaning = "idx: file of the test images; empty: a part of the training set is held out.", .only_for = idx},
    {.name = "data.test_labels", .kind = Kind::text, .slot = TRIREME_SLOT(data.test_labels), .meaning = "idx: file of the test labels.", .only_for = idx},
    {.name = "data.classes", .kind = Kind::whole, .slot = TRIREME_SLOT(data.classes), .meaning = "Number of classes: a label outside 0..classes-1 is an error; auto: from the labels.",
     .range = at_least(1), .automatic = -1, .only_for = images},
    {.name = "data.split_seed", .kind = Kind::whole, .slot = TRIREME_SLOT(data.split_seed), .meaning = "Decides which images are held out, independently of train.seed.", .range = at_least(0), .only_for = images},
    {.name = "data.test_fraction", .kind = Kind::number, .slot = TRIREME_SLOT(data.test_fraction), .meaning = "Fraction of the samples that is held out for the test, if the data has no test part of its own; text: its end.",
     .range = from_below(0, 1)},
    {.name = "data.batch", .kind = Kind::whole, .slot = TRIREME_SLOT(data.batch), .meaning = "The global batch: samples per step over all replicas together.", .range = at_least(1)},
    {.name = "data.shuffle", .kind = Kind::flag, .slot = TRIREME_SLOT(data.shuffle), .meaning = "Use the samples of every epoch in a new order, from train.seed."},
    {.name = "data.drop_last", .kind = Kind::flag, .slot = TRIREME_SLOT(data.drop_last), .meaning = "Leave out the last batch of an epoch if it is smaller."},
    {.name = "data.threads", .kind = Kind::whole, .slot = TRIREME_SLOT(data.threads), .meaning = "Threads of each replica that prepare batches ahead; 0: none.", .range = from_to(0, 256)},
    {.name = "data.prefetch", .kind = Kind::whole, .slot = TRIREME_SLOT(data.prefetch), .meaning = "Batches that each replica holds ready.", .range = from_to(1, 1024)},

    {.name = "optimizer.name", .kind = Kind::choice, .slot = TRIREME_SLOT(optimizer.name), .meaning = "The update rule, as torch::optim or its paper has it.",
     .choices = {"sgd", "adam", "adamw", "rmsprop", "adagrad", "lars", "lamb"}},
    {.name = "optimizer.lr", .kind = Kind::number, .slot = TRIREME_SLOT(optimizer.lr), .meaning = "Learning rate, before the schedule.", .range = at_least(0)},
    {.name = "optimizer.momentum", .kind = Kind::number, .slot = TRIREME_SLOT(optimizer.momentum), .meaning = "sgd, rmsprop, lars: fraction of the last update that continues.",
     .range = from_below(0, 1), .only_for = {"optimizer.name", {"sgd", "rmsprop", "lars"}}},
    {.name = "optimizer.weight_decay", .kind = Kind::number, .slot = TRIREME_SLOT(optimizer.weight_decay), .meaning = "Pull of the weights towards 0.", .range = at_least(0)},
    {.name = "optimizer.beta1", .kind = Kind::number, .slot = TRIREME_SLOT(optimizer.beta1), .meaning = "adam, adamw, lamb: decay of the mean gradient.", .range = from_below(0, 1), .only_for = adam},
    {.name = "optimizer.beta2", .kind = Kind::number, .slot = TRIREME_SLOT(optimizer.beta2), .meaning = "adam, adamw, lamb: decay of the mean squared gradient.", .range = from_below(0, 1), .only_for = adam},
    {.name = "optimizer.eps", .kind = Kind::number, .slot = TRIREME_SLOT(optimizer.eps), .meaning = "All but sgd and lars: added to the divisor.",
     .range = above(0), .only_for = {"optimizer.name", {"adam", "adamw", "rmsprop", "adagrad", "lamb"}}},
    {.name = "optimizer.alpha", .kind = Kind::number, .slot = TRIREME_SLOT(optimizer.alpha), .meaning = "rmsprop: decay of the mean squared gradient.",
     .range = from_below(0, 1), .only_for = {"optimizer.name", {"rmsprop"}}},
    {.name = "optimizer.trust", .kind = Kind::number, .slot = TRIREME_SLOT(optimizer.trust), .meaning = "lars: the fraction of a layer's norm by which a step may move it.", .range = above(0), .only_for = {"optimizer.name", {"lars"}}},
    {.name = "optimizer.nesterov", .kind = Kind::flag, .slot = TRIREME_SLOT(optimizer.nesterov), .meaning = "sgd: Nesterov's momentum.", .only_for = {"optimizer.name", {"sgd"}}},

    {.name = "optimizer.scale_lr", .kind = Kind::choice, .slot = TRIREME_SLOT(optimizer.scale_lr), .meaning = "How the learning rate follows data.batch / optimizer.base_batch: not at all, in proportion, or as its square root.",
     .choices = {"none", "linear", "sqrt"}},
    {.name = "optimizer.base_batch", .kind = Kind::whole, .slot = TRIREME_SLOT(optimizer.base_batch), .meaning = "The global batch for which optimizer.lr was found; optimizer.scale_lr needs it.", .range = at_least(0),
     .only_for = {"optimizer.scale_lr", {"linear", "sqrt"}}},

    {.name = "schedule.name", .kind = Kind::choice, .slot = TRIREME_SLOT(schedule.name), .meaning = "How the learning rate changes: not at all, in steps, or along a cosine over the whole run.",
     .choices = {"constant", "step", "cosine"}},
    {.name = "schedule.gamma", .kind = Kind::number, .slot = TRIREME_SLOT(schedule.gamma), .meaning = "step: factor of each decay.", .range = above(0), .only_for = {"schedule.name", {"step"}}},
    {.name = "schedule.every", .kind = Kind::whole, .slot = TRIREME_SLOT(schedule.every), .meaning = "step: epochs between decays; must be above 0 then.", .range = at_least(0),
     .only_for = {"schedule.name", {"step"}}},
    {.name = "schedule.minimum", .kind = Kind::number, .slot = TRIREME_SLOT(schedule.minimum), .meaning = "cosine: fraction of the learning rate that is left at the end.",
     .range = from_to(0, 1), .only_for = {"schedule.name", {"cosine"}}},
    {.name = "schedule.warmup_steps", .kind = Kind::whole, .slot = TRIREME_SLOT(schedule.warmup_steps), .meaning = "Steps over which the learning rate first rises from near 0.", .range = at_least(0)},

    {.name = "strategy.name", .kind = Kind::choice, .slot = TRIREME_SLOT(strategy.name),
     .meaning = "How the work is spread; auto: multi_worker for several workers, else mirrored for several replicas, else one_device.",
     .choices = {"auto", "one_device", "mirrored", "multi_worker"}},
    {.name = "strategy.replicas", .kind = Kind::whole, .slot = TRIREME_SLOT(strategy.replicas), .meaning = "Replicas in each worker; auto: 1, and for mirrored one for each core (at most 8).",
     .range = from_to(1, 1024), .automatic = -1},
    {.name = "strategy.all_reduce", .kind = Kind::choice, .slot = TRIREME_SLOT(strategy.all_reduce), .meaning = "The algorithm for sums between threads, in shared memory and over tcp (docs/collectives.md); auto: by size, from comm.table.",
     .choices = {"auto", "naive", "direct", "ring", "recursive_doubling", "halving_doubling", "tree", "hierarchical"}},
    {.name = "strategy.share_parameters", .kind = Kind::flag, .slot = TRIREME_SLOT(strategy.share_parameters), .meaning = "Keep one copy of parameters and optimizer state for all replicas of a host, if the optimizer and the backend allow it."},
    {.name = "strategy.sync_batch_norm", .kind = Kind::flag, .slot = TRIREME_SLOT(strategy.sync_batch_norm), .meaning = "Compute batch norm over the samples of all replicas, as one device does with the whole batch."},
    {.name = "strategy.compression", .kind = Kind::choice, .slot = TRIREME_SLOT(strategy.compression), .meaning = "How gradients are made smaller before they are sent (docs/compression.md).",
     .choices = {"none", "bf16", "fp16", "int8", "topk", "powersgd"}},
    {.name = "strategy.compression_rank", .kind = Kind::whole, .slot = TRIREME_SLOT(strategy.compression_rank), .meaning = "powersgd: columns of each factor.", .range = from_to(1, 1024),
     .only_for = {"strategy.compression", {"powersgd"}}},
    {.name = "strategy.compression_ratio", .kind = Kind::number, .slot = TRIREME_SLOT(strategy.compression_ratio), .meaning = "topk: fraction of the values that is sent.",
     .range = {.least = 0, .most = 1, .least_excluded = true}, .only_for = {"strategy.compression", {"topk"}}},
    {.name = "strategy.local_steps", .kind = Kind::whole, .slot = TRIREME_SLOT(strategy.local_steps), .meaning = "Steps that replicas take independently before their parameters are averaged (local SGD); 1: none.", .range = at_least(1)},
    {.name = "strategy.local_after", .kind = Kind::whole, .slot = TRIREME_SLOT(strategy.local_after), .meaning = "With strategy.local_steps: replicas stay together until this step (post-local SGD).", .range = at_least(0)},
    {.name = "strategy.local_momentum", .kind = Kind::flag, .slot = TRIREME_SLOT(strategy.local_momentum), .meaning = "With strategy.local_steps: average the optimizer's state too."},
    {.name = "strategy.bucket_bytes", .kind = Kind::bytes, .slot = TRIREME_SLOT(strategy.bucket_bytes), .meaning = "Gradients travel in buckets of this size.", .range = at_least(1)},
    {.name = "strategy.first_bucket_bytes", .kind = Kind::bytes, .slot = TRIREME_SLOT(strategy.first_bucket_bytes), .meaning = "Size of the first bucket. It is small so that sending starts early.", .range = at_least(1)},

    {.name = "train.epochs", .kind = Kind::whole, .slot = TRIREME_SLOT(train.epochs), .meaning = "Passes over the training set; auto: 10, unless train.steps is given.",
     .range = at_least(1), .automatic = -1},
    {.name = "train.steps", .kind = Kind::whole, .slot = TRIREME_SLOT(train.steps), .meaning = "Updates, instead of epochs; 0 saves the initial weights; auto: as many as the epochs take.",
     .range = at_least(0), .automatic = -1},
    {.name = "train.seed", .kind = Kind::whole, .slot = TRIREME_SLOT(train.seed), .meaning = "Decides initial weights, order of samples and dropout.", .range = at_least(0)},
    {.name = "train.dtype", .kind = Kind::choice, .slot = TRIREME_SLOT(train.dtype), .meaning = "Type of parameters and data; the 16-bit types have float32 masters.",
     .choices = {"float32", "float64", "bfloat16", "float16"}},
    {.name = "train.precision", .kind = Kind::choice, .slot = TRIREME_SLOT(train.precision), .meaning = "The precision of forward and backward where that is safe (autocast); parameters stay float32. fp16 turns loss scaling on.",
     .choices = {"float32", "bf16", "fp16"}},
    {.name = "train.loss_scale", .kind = Kind::number, .slot = TRIREME_SLOT(train.loss_scale), .meaning = "fp16, float16: the first factor of losses. It is halved after an overflow and doubled after 2000 steps without one.", .range = above(0)},
    {.name = "train.ema_decay", .kind = Kind::number, .slot = TRIREME_SLOT(train.ema_decay), .meaning = "Decay of an average of the parameters, which evaluation then uses; 0: none.", .range = from_below(0, 1)},
    {.name = "train.accumulate", .kind = Kind::whole, .slot = TRIREME_SLOT(train.accumulate), .meaning = "Parts into which each replica cuts its share of a batch, to save memory.", .range = count_from(1)},
    {.name = "train.clip_norm", .kind = Kind::number, .slot = TRIREME_SLOT(train.clip_norm), .meaning = "Largest global norm of the gradients; 0: no clipping.", .range = at_least(0)},
    {.name = "train.evaluate_every", .kind = Kind::whole, .slot = TRIREME_SLOT(train.evaluate_every), .meaning = "Epochs between tests on the held-out samples; 0: a test at the end only.", .range = at_least(0)},

    {.name = "guard.policy", .kind = Kind::choice, .slot = TRIREME_SLOT(guard.policy), .meaning = "What happens after a loss or gradient that is NaN, infinite or a spike: the run stops, skips the batch, or goes back to the newest checkpoint (docs/recovery.md).",
     .choices = {"stop", "skip", "rollback"}},
    {.name = "guard.spike", .kind = Kind::number, .slot = TRIREME_SLOT(guard.spike), .meaning = "A loss or gradient norm above this many times the median of the last steps is a spike; 0: no value is.", .range = at_least(0)},
    {.name = "guard.window", .kind = Kind::whole, .slot = TRIREME_SLOT(guard.window), .meaning = "Steps from which that median is taken. Before there are as many, nothing is a spike.", .range = from_to(2, 1000000)},
    {.name = "guard.check_replicas_every", .kind = Kind::whole, .slot = TRIREME_SLOT(guard.check_replicas_every), .meaning = "Steps between comparisons of all replicas' parameters, against silent corruption; 0: never.", .range = at_least(0)},

    {.name = "inject.faults", .kind = Kind::text, .slot = TRIREME_SLOT(inject.faults), .meaning = "Faults to inject into the run, such as `kill:rank=1@step=40` (docs/faults.md); none: no faults. --inject sets it."},
    {.name = "inject.expect", .kind = Kind::text, .slot = TRIREME_SLOT(inject.expect), .meaning = "What must hold at the end: same-loss, exactly-once, or both (docs/faults.md); none: nothing is checked. --expect sets it."},

    {.name = "reproducible.virtual_shards", .kind = Kind::whole, .slot = TRIREME_SLOT(reproducible.virtual_shards), .meaning = "Pieces of the global batch. Each is computed apart, and all are added up in a fixed order, so any number of replicas, also one that changes, ends with the same bits (docs/numerics.md); 0: off.",
     .range = from_to(0, 1024)},

    {.name = "elastic.batch", .kind = Kind::choice, .slot = TRIREME_SLOT(elastic.batch), .meaning = "What happens when the number of workers changes (docs/recovery.md). keep: data.batch stays, and fewer workers take larger shares in more passes. scale: each worker's share stays, so the global batch is that share times the workers.",
     .choices = {"keep", "scale"}},
    {.name = "elastic.lr", .kind = Kind::choice, .slot = TRIREME_SLOT(elastic.lr), .meaning = "With elastic.batch scale: the learning rate follows the batch in proportion (linear), with its square root (sqrt), or not (none).",
     .choices = {"none", "linear", "sqrt"}},
    {.name = "elastic.warmup_steps", .kind = Kind::whole, .slot = TRIREME_SLOT(elastic.warmup_steps), .meaning = "A learning rate that rises by elastic.lr does so linearly over this many steps after each resize.", .range = at_least(0)},
    {.name = "elastic.workers", .kind = Kind::whole, .slot = TRIREME_SLOT(elastic.workers), .meaning = "Workers for which data.batch and optimizer.lr were chosen; 0: as many as the run is started with.", .range = count_from(0)},

    {.name = "device.name", .kind = Kind::choice, .slot = TRIREME_SLOT(device.name), .meaning = "The device that computes.", .choices = {"cpu"}},
    {.name = "device.threads", .kind = Kind::whole, .slot = TRIREME_SLOT(device.threads), .meaning = "Threads of each replica; auto: cores / replicas of the host, at least 1, and 1 with reproducible.virtual_shards.",
     .range = from_to(1, 4096), .automatic = 0},

    {.name = "comm.backend", .kind = Kind::choice, .slot = TRIREME_SLOT(comm.backend), .meaning = "The backend that carries the bytes: threads inside a process, shm (shared memory) inside a host, between hosts gloo, tcp (Trireme's own, authenticated) or mpi (started by mpirun); auto: the first that fits.",
     .choices = {"auto", "threads", "shm", "tcp", "gloo", "mpi"}},
    {.name = "comm.interface", .kind = Kind::text, .slot = TRIREME_SLOT(comm.interface), .meaning = "Network interface or address to use; empty: loopback, or the route to the rendezvous."},
    {.name = "comm.table", .kind = Kind::text, .slot = TRIREME_SLOT(comm.table), .meaning = "File that `trireme bench collectives --tune` wrote, with the fastest algorithm for each size; empty: defaults. All ranks use rank 0's file."},
    {.name = "comm.timeout", .kind = Kind::duration, .slot = TRIREME_SLOT(comm.timeout), .meaning = "Longest wait for other ranks in one operation.", .range = at_least(1)},
    {.name = "comm.heartbeat_interval", .kind = Kind::duration, .slot = TRIREME_SLOT(comm.heartbeat_interval), .meaning = "Time between two heartbeats, by which a worker says that it lives.", .range = at_least(1)},
    {.name = "comm.heartbeat_timeout", .kind = Kind::duration, .slot = TRIREME_SLOT(comm.heartbeat_timeout), .meaning = "A worker that is silent for this long is lost; 0s: 10s, in an elastic job 2s.", .range = at_least(0)},
    {.name = "comm.launcher_grace", .kind = Kind::duration, .slot = TRIREME_SLOT(comm.launcher_grace), .meaning = "Workers of an elastic job continue for this long after their launcher died; then they save and end.", .range = at_least(0)},
    {.name = "comm.stall_timeout", .kind = Kind::duration, .slot = TRIREME_SLOT(comm.stall_timeout), .meaning = "A worker for which the others wait this long is named with its phase and place; nothing is ended.", .range = at_least(1)},
    {.name = "comm.straggler_factor", .kind = Kind::number, .slot = TRIREME_SLOT(comm.straggler_factor), .meaning = "A worker is a straggler if its work in a step takes more than this many times the others'. It is named with the phase that costs the time; 0: no worker is.", .range = at_least(0)},

    {.name = "launch.stop_grace", .kind = Kind::duration, .slot = TRIREME_SLOT(launch.stop_grace), .meaning = "After a request to stop, workers have this long to save and end; then they are killed. A checkpoint that is being written when a worker is lost has as long.", .range = at_least(0)},
    {.name = "launch.loss_grace", .kind = Kind::duration, .slot = TRIREME_SLOT(launch.loss_grace), .meaning = "After a worker was lost and the job cannot continue, the other workers have this long to end by themselves.", .range = at_least(0)},

    {.name = "checkpoint.dir", .kind = Kind::text, .slot = TRIREME_SLOT(checkpoint.dir), .meaning = "Folder of the checkpoints. A run that finds one there continues from it; empty: a folder of the run."},
    {.name = "checkpoint.every", .kind = Kind::text, .slot = TRIREME_SLOT(checkpoint.every), .meaning = "When to save: `100 steps` or `2 epochs`; empty or `never`: only at the end."},
    {.name = "checkpoint.keep", .kind = Kind::whole, .slot = TRIREME_SLOT(checkpoint.keep), .meaning = "The number of newest checkpoints that stay.", .range = count_from(1)},
    {.name = "checkpoint.keep_every", .kind = Kind::whole, .slot = TRIREME_SLOT(checkpoint.keep_every), .meaning = "Checkpoints of steps that are a multiple of this number stay for ever; 0: none does.", .range = at_least(0)},
    {.name = "checkpoint.keep_best", .kind = Kind::whole, .slot = TRIREME_SLOT(checkpoint.keep_best), .meaning = "The number of checkpoints with the lowest loss on the held-out samples that stay too. Only those saved right after an evaluation count.", .range = count_from(0)},
    {.name = "checkpoint.background", .kind = Kind::flag, .slot = TRIREME_SLOT(checkpoint.background), .meaning = "Continue to train while a copy in memory is written; false: training waits for the disk, and needs no memory for a copy."},
    {.name = "checkpoint.writers", .kind = Kind::choice, .slot = TRIREME_SLOT(checkpoint.writers), .meaning = "The workers that write a part of each checkpoint: the first of each host (hosts; on one host worker 0 writes all of it), or all (ranks; a checkpoint is lost if any of them dies while it is written).",
     .choices = {"hosts", "ranks"}},

    {.name = "run.dir", .kind = Kind::text, .slot = TRIREME_SLOT(run.dir), .meaning = "Folder of logs and report; empty: a new folder under runs/, named after data and time."},

    {.name = "monitor.progress", .kind = Kind::flag, .slot = TRIREME_SLOT(monitor.progress), .meaning = "Show a progress bar, or plain lines if there is no terminal."},
    {.name = "monitor.json_lines", .kind = Kind::flag, .slot = TRIREME_SLOT(monitor.json_lines), .meaning = "Write one JSON line per step."},
    {.name = "monitor.tensorboard", .kind = Kind::flag, .slot = TRIREME_SLOT(monitor.tensorboard), .meaning = "Write TensorBoard events."},

    {.name = "cost.per_cpu_hour", .kind = Kind::number, .slot = TRIREME_SLOT(cost.per_cpu_hour), .meaning = "Money for one CPU busy for one hour.", .range = at_least(0)},
    {.name = "cost.per_device_hour", .kind = Kind::number, .slot = TRIREME_SLOT(cost.per_device_hour), .meaning = "Money for one replica's device reserved for one hour.", .range = at_least(0)},
  };
}
// clang-format on
#undef TRIREME_SLOT

}  // namespace trireme::cli
