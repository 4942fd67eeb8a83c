#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/parallel/grad_scaler.h>
#include <cmath>

namespace trireme {
namespace {

void require(bool holds, const char* option, double value, const char* rule) {
  if (!holds)
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("the loss scale's {} is {}", option, value), rule);
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options) : options_(options), scale_(options.initial) {
  require(std::isfinite(options.initial) && options.initial > 0, "initial value", options.initial,
          "a number above 0, such as 65536");
  require(std::isfinite(options.growth) && options.growth > 1, "growth", options.growth,
          "a factor above 1, such as 2");
  require(options.backoff > 0 && options.backoff < 1, "backoff", options.backoff,
          "a factor between 0 and 1, such as 0.5");
  require(options.growth_interval >= 1, "growth interval",
          static_cast<double>(options.growth_interval), "at least 1 step");
}

void GradScaler::update(bool overflow) {
  constexpr double kSmallest = 1.0 / 65536;
  if (overflow) {
    if (scale_ * options_.backoff < kSmallest)
      throw Error(ErrorCode::internal, "parallel",
                  fmt::format("gradients are NaN or infinite even at a loss scale of {}", scale_),
                  "a smaller optimizer.lr, train.precision=bf16, or a look at the data");
    scale_ *= options_.backoff;
    steps_since_change_ = 0;
  } else if (++steps_since_change_ == options_.growth_interval) {
    if (std::isfinite(scale_ * options_.growth)) scale_ *= options_.growth;
    steps_since_change_ = 0;
  }
}

Json GradScaler::state() const {
  return {{"scale", scale_}, {"steps_since_change", steps_since_change_}};
}

void GradScaler::load(const Json& state) {
  scale_ = state.at("scale");
  steps_since_change_ = state.at("steps_since_change");
}

}  // namespace trireme
