// Names of one's own for a configuration, from a shared object (model.library) or from a programme
// of one's own:
//
//   TRIREME_MODEL("mine", trireme::model_factory<Net>());
//   TRIREME_MODEL("mine", trireme::model_factory<Net>(), {.input = {{3, 32, 32}, 10}});
//   TRIREME_DATA("mine", [](const trireme::data::DataOptions& options) { ... });
//   TRIREME_LOSS("focal", [](const at::Tensor& output, const at::Tensor& target) { ... });
//   TRIREME_METRIC("top5", trireme::mean_metric("top5", ...));
//   TRIREME_DECODE("letters", [](const trireme::records::Record& record, int64_t) { ... });
//
// TRIREME_DECODE, TRIREME_MAP and TRIREME_FILTER are for functions that stages call, with their
// versions behind them (trireme/data/pipeline/functions.h).
//
// They stand outside of functions, and the name is a literal. `trireme train`, `trireme plan` and
// `trireme bench step` then know the name (docs/models.md); a programme calls run_as_worker() for
// that. In a static library, the linker leaves out a source of which it needs nothing else: such a
// source belongs into the programme itself.
#pragma once
#include <torch/headeronly/version.h>
#include <trireme/base/version.h>
#include <trireme/config/registration.h>
#include <trireme/data/pipeline/functions.h>
#include <trireme/models/build.h>
#include <trireme/run/as_worker.h>
#include <trireme/run/training.h>
#include <trireme/train/metric.h>

#define TRIREME_JOINED_(a, b) a##b
#define TRIREME_JOIN_(a, b) TRIREME_JOINED_(a, b)
// The text lets a process without LibTorch find the name in the file (run/model_library.h).
#define TRIREME_REGISTER_(number, kind, name, ...)                                                \
  namespace {                                                                                     \
  [[gnu::used, gnu::retain]] constexpr char TRIREME_JOIN_(trireme_name_,                          \
                                                          number)[] = "\x1etrireme:" kind         \
                                                                      ":" name ":" TORCH_VERSION  \
                                                                      ":" TRIREME_HEADERS_VERSION \
                                                                      "\x1f";                     \
  [[maybe_unused]] const bool TRIREME_JOIN_(trireme_registered_,                                  \
                                            number) = ::trireme::config::register_early([] {      \
    __VA_ARGS__;                                                                                  \
  });                                                                                             \
  }                                                                                               \
  static_assert(true, "so that a semicolon may follow")

#define TRIREME_MODEL(name, ...)                \
  TRIREME_REGISTER_(__COUNTER__, "model", name, \
                    ::trireme::models::register_model(name, __VA_ARGS__))
#define TRIREME_DATA(name, ...) \
  TRIREME_REGISTER_(__COUNTER__, "data", name, ::trireme::register_data(name, __VA_ARGS__))
#define TRIREME_LOSS(name, ...) \
  TRIREME_REGISTER_(__COUNTER__, "loss", name, ::trireme::register_loss(name, __VA_ARGS__))
#define TRIREME_METRIC(name, ...) \
  TRIREME_REGISTER_(__COUNTER__, "metric", name, ::trireme::register_metric(__VA_ARGS__))
#define TRIREME_DECODE(name, ...) \
  TRIREME_REGISTER_(__COUNTER__, "stage", name, ::trireme::register_decode(name, __VA_ARGS__))
#define TRIREME_MAP(name, ...) \
  TRIREME_REGISTER_(__COUNTER__, "stage", name, ::trireme::register_map(name, __VA_ARGS__))
#define TRIREME_FILTER(name, ...) \
  TRIREME_REGISTER_(__COUNTER__, "stage", name, ::trireme::register_filter(name, __VA_ARGS__))
