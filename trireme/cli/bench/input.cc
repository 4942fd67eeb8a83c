#include <ATen/core/Tensor.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/cli/bench_arguments.h>
#include <trireme/data/loader.h>
#include <trireme/data/service/server_work.h>
#include <trireme/data/source_makers.h>
#include <trireme/monitor/text.h>
#include <trireme/run/config.h>
#include <trireme/run/data_service.h>
#include <trireme/run/dataset.h>
#include <trireme/run/place_cache.h>
#include <trireme/train/generation.h>
#include <trireme/train/input_report.h>
#include <algorithm>
#include <chrono>

namespace trireme::cli {
namespace {

double now_in_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A loader that is tuned has so long to settle before it is measured.
constexpr double kSecondsToSettle = 3;

struct InputFigures {
  double settling = 0;
  LoaderTuning tuning;
  int64_t samples = 0, left_out = 0, bytes = 0, batches = 0;
  double seconds = 0;
  std::vector<data::StageUse> stages;
  std::string form;
};

std::string form_of(const Batch& batch) {
  const auto one = [](const at::Tensor& tensor) {
    return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()),
                       fmt::join(tensor.sizes(), ", "));
  };
  std::string text = fmt::format("data {}, target {}", one(batch.data), one(batch.target));
  for (const auto& [name, tensor] : batch.more) text += fmt::format(", {} {}", name, one(tensor));
  return text;
}

InputFigures measure_input(Loader& loader, double seconds) {
  InputFigures figures;
  figures.form = form_of(loader.next());  // The first batch starts the threads.
  const double start = now_in_seconds();
  while (!loader.tuning().is_settled && now_in_seconds() - start < kSecondsToSettle) loader.next();
  const double begin = now_in_seconds();
  figures.settling = begin - start;
  while (figures.seconds < seconds) {
    const Batch batch = loader.next();
    figures.samples += batch.size();
    figures.left_out += std::ssize(batch.left_out);
    figures.bytes += static_cast<int64_t>(batch.data.nbytes() + batch.target.nbytes());
    ++figures.batches;
    figures.seconds = now_in_seconds() - begin;
  }
  figures.stages = loader.stage_use();
  figures.tuning = loader.tuning();
  return figures;
}

Json json_of(const InputFigures& figures, const LoaderOptions& options, const Source& source) {
  const LoaderTuning& tuning = figures.tuning;
  Json cache;
  if (const auto use = source.cache_use()) cache = json_of_cache(*use);
  return {{"samples_per_second", static_cast<double>(figures.samples) / figures.seconds},
          {"bytes_per_second", static_cast<double>(figures.bytes) / figures.seconds},
          {"samples", figures.samples},
          {"left_out", figures.left_out},
          {"batches", figures.batches},
          {"batch", options.batch},
          {"threads", tuning.setting.threads},
          {"prefetch", tuning.setting.ahead},
          {"tuned",
           {{"threads", tuning.tunes_threads},
            {"prefetch", tuning.tunes_prefetch},
            {"settled", tuning.is_settled},
            {"reason", data::to_string(tuning.reason)},
            {"seconds", figures.settling},
            {"to_freeze", settings_of(tuning.setting)}}},
          {"cache", cache},
          {"form", figures.form},
          {"stages", data::to_json(figures.stages)}};
}

void print_input(const Json& figures) {
  fmt::print("{} samples/s in batches of {}, {} threads: {}\n",
             monitor::rate_text(figures["samples_per_second"].get<double>()),
             figures["batch"].get<int64_t>(), figures["threads"].get<int>(),
             figures["form"].get<std::string>());
  const Json& tuned = figures["tuned"];
  if (tuned["threads"].get<bool>() || tuned["prefetch"].get<bool>())
    fmt::print("  tuned in {:.1f} s; to keep it: {}\n", tuned["seconds"].get<double>(),
               tuned["to_freeze"].get<std::string>());
  for (const Json& stage : figures["stages"])
    fmt::print("  {:<28} {:>10.4f} ms {:>10} a sample\n",
               stage["name"].get<std::string>() + (stage.contains("in") ? " (service)" : ""),
               stage["ms_per_sample"].get<double>(),
               format_bytes(stage["bytes"].get<int64_t>() /
                            std::max<int64_t>(1, stage["samples"].get<int64_t>())));
  if (const auto left_out = figures["left_out"].get<int64_t>(); left_out > 0)
    fmt::print("  {} samples were left out\n", left_out);
}

}  // namespace

int bench_input(const InputArguments& arguments) {
  Config config = load_config(arguments.source);
  check(config);
  if (const std::string line = place_cache(config); !line.empty())
    fmt::print(stderr, "{}\n", line);
  const Dataset data = read_data(config);
  use_data_service(config);
  const data::Sources sources = data::make_sources(config.data.name, data);
  LoaderOptions options = loader_options_of(config.trainer, config.trainer.batch);
  options.shuffle = order_of(config, data);
  options.memory_bytes = config.data.memory_bytes;
  options.compute_threads = 0;  // There is no model.
  Loader loader(sources.train, options);
  const Json figures = json_of(measure_input(loader, static_cast<double>(arguments.seconds)),
                               options, *sources.train);
  if (arguments.json)
    fmt::print("{}\n", figures.dump(2));
  else
    print_input(figures);
  return kExitOk;
}

}  // namespace trireme::cli
