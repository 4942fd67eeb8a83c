#include <fmt/format.h>

#include <trireme/models/checks.h>
#include <trireme/models/cnn.h>

namespace trireme::models {
namespace {

void resolve_cnn(ModelOptions& options) {
  if (options.channels.empty()) {
    options.channels = {32, 64, 64, 128, 128, 256};
    if (options.strides.empty()) options.strides = {1, 2, 1, 2, 1, 2};
  }
  if (options.strides.empty()) options.strides.assign(options.channels.size(), 1);
  require_positive("model.channels", options.channels);
  require_positive("model.strides", options.strides);
  if (options.strides.size() != options.channels.size()) {
    refuse(fmt::format("model.strides has {} entries and model.channels has {}: there must be one "
                       "stride for each convolution",
                       options.strides.size(), options.channels.size()),
           "as many strides as channels");
  }
  options.batch_norm = options.batch_norm == 0 ? 0 : 1;
}

void add_cnn(ShapeList& list, const ModelOptions& options, const InputSpec& input) {
  check_images(options, input);
  int64_t channels = input.shape[0];
  int64_t slot = 0, block = 0;
  for (const int64_t next : options.channels) {
    list.begin_block(fmt::format("features{}", block++));
    list.add(fmt::format("features.{}.weight", slot++), {next, channels, 3, 3});
    if (options.batch_norm == 1) {
      list.add_norm(fmt::format("features.{}", slot++), next);
    } else {
      list.add(fmt::format("features.{}.bias", slot - 1), {next});
    }
    ++slot;  // The ReLU.
    channels = next;
  }
  list.begin_block("head");
  list.add_linear("classifier", channels, input.classes);
}

}  // namespace

Family cnn_family() {
  return {.names = {"cnn"},
          .keys = {"model.channels", "model.strides", "model.batch_norm", "model.dropout"},
          .resolve = resolve_cnn,
          .add_shapes = add_cnn,
          .default_input = [](const ModelOptions&) -> InputSpec { return {{3, 32, 32}, 10}; },
          .default_batch = [](const ModelOptions&) -> int64_t { return 32; },
          .has_batch_norm = [](const ModelOptions& options) { return options.batch_norm == 1; },
          .without_batch_norm = "model.batch_norm=false"};
}

}  // namespace trireme::models
