// `trireme bench checkpoint`: measures how much a save slows training down, how soon it is
// durable, and how long loading takes.
#include <fmt/format.h>
#include <trireme/base/cores.h>
#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <trireme/checkpoint/load.h>
#include <trireme/checkpoint/snapshot.h>
#include <trireme/checkpoint/writer.h>
#include <trireme/cli/bench_arguments.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using checkpoint::TensorView;
using Clock = std::chrono::steady_clock;

constexpr int kTensors = 12;
constexpr size_t kUnitFloats = 64 << 10;  // A thread's part of a unit of work stays in its cache.

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

// The parameters of a model, or two moments for each parameter.
struct Tensors {
  Tensors(const std::string& suffix, int64_t bytes) : memory(static_cast<size_t>(bytes)) {
    for (size_t i = 0; i < memory.size(); ++i)
      memory[i] = static_cast<std::byte>(i * 0x9e3779b97f4a7c15ULL >> 56);
    const int64_t elements = bytes / 4 / kTensors;
    for (int i = 0; i < kTensors; ++i)
      views.push_back({{fmt::format("layer{}.weight{}", i, suffix), {elements}},
                       std::span(memory).subspan(static_cast<size_t>(4 * elements * i),
                                                 static_cast<size_t>(4 * elements))});
  }
  std::vector<std::byte> memory;
  std::vector<TensorView> views;
};

// Arithmetic on every core, like training. seconds() measures `units` of it, and calls
// `in_between` on the calling thread half-way.
class Work {
 public:
  double seconds(int units, const std::function<void()>& in_between = {}) {
    const auto start = Clock::now();
    for (int unit = 0; unit < units; ++unit) {
      if (unit == units / 2 && in_between) in_between();
      std::vector<std::jthread> others;
      for (size_t i = 1; i < cores_.size(); ++i)
        others.emplace_back([this, i] { run(cores_[i]); });
      run(cores_[0]);
    }
    return seconds_since(start);
  }

 private:
  static void run(std::vector<float>& values) {
    for (int pass = 0; pass < 400; ++pass)
      for (float& value : values) value = value * 0.999f + 0.001f;
  }
  std::vector<std::vector<float>> cores_ = std::vector<std::vector<float>>(
      static_cast<size_t>(usable_cores()), std::vector<float>(kUnitFloats, 1.0f));
};

fs::path folder_for_temporary_files() {
  std::error_code reason;
  fs::path folder = fs::temp_directory_path(reason);
  if (reason)
    throw Error(ErrorCode::not_found, "cli",
                fmt::format("the folder for temporary files cannot be used: {}", reason.message()),
                "--folder FOLDER, or another TMPDIR");
  return folder;
}

struct BenchFolder {
  explicit BenchFolder(const fs::path& base)
      : path(base / fmt::format("trireme-bench-checkpoint-{}", ::getpid())) {}
  ~BenchFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

double copy_seconds(const Tensors& model, const Tensors& optimizer, std::vector<std::byte>& to) {
  const auto start = Clock::now();
  std::memcpy(to.data(), model.memory.data(), model.memory.size());
  std::memcpy(to.data() + model.memory.size(), optimizer.memory.data(), optimizer.memory.size());
  return seconds_since(start);
}

// The minimum that any checkpoint needs: the bytes are written to a new file, then fsync.
double raw_seconds(const fs::path& path, const std::vector<std::byte>& bytes) {
  const auto start = Clock::now();
  {
    const auto file = checkpoint::disk().create(path);
    // This start is not aligned, so the bytes go through the page cache, like those of other
    // writers.
    for (auto rest = std::span(bytes).subspan(1); !rest.empty();)
      rest = rest.subspan(file->write(rest));
    file->sync();
  }
  const double seconds = seconds_since(start);
  checkpoint::disk().remove(path);
  return seconds;
}

void check_checkpoint(const BenchArguments& arguments) {
  if (arguments.repeats < 1)
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("--repeats {} is below 1", arguments.repeats), "1 or more");
  if (arguments.model_mb < 1 || arguments.model_mb > 10'000)
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("--model-mb {}", arguments.model_mb), "1 to 10000");
}

// The seconds of each repetition.
struct CheckpointTimes {
  std::vector<double> copies, blocking, added, durable, raw, loads;
};

// Saves while this thread works, and once while it waits. `copy` holds the bytes of one save.
void measure_saves(const std::function<void()>& save, checkpoint::Writer& writer, Work& work,
                   int units, const fs::path& folder, const std::vector<std::byte>& copy,
                   CheckpointTimes& times) {
  const double undisturbed = work.seconds(units);
  double blocked = 0;
  const double disturbed = work.seconds(units, [&] {
    const auto start = Clock::now();
    save();
    blocked = seconds_since(start);
  });
  writer.wait();
  times.blocking.push_back(blocked);
  times.added.push_back(disturbed - (undisturbed + work.seconds(units)) / 2);
  times.raw.push_back(raw_seconds(folder / "raw", copy));
  const auto start = Clock::now();
  save();
  writer.wait();
  times.durable.push_back(seconds_since(start));
}

// Loads the newest checkpoint into `memory`.
double load_seconds(const fs::path& folder, std::vector<std::byte>& memory) {
  const auto place = [&](const checkpoint::Saved& saved) {
    std::vector<checkpoint::Destination> destinations;
    size_t at = 0;
    for (const auto* file : {saved.model.get(), saved.optimizer.get()})
      for (const TensorView& tensor : file->tensors()) {
        destinations.push_back({&tensor, std::span(memory).subspan(at, tensor.bytes.size())});
        at += tensor.bytes.size();
      }
    return destinations;
  };
  const auto start = Clock::now();
  checkpoint::load_newest(folder, place);
  return seconds_since(start);
}

void print_times(const BenchArguments& arguments, size_t bytes, const CheckpointTimes& times) {
  const Json json = {
      {"bytes", bytes},
      {"repeats", arguments.repeats},
      {"copy_ms", median_of(times.copies) * 1e3},
      {"blocking_ms", median_of(times.blocking) * 1e3},
      {"added_ms", median_of(times.added) * 1e3},
      {"durable_ms", median_of(times.durable) * 1e3},
      {"raw_write_ms", median_of(times.raw) * 1e3},
      {"load_ms", median_of(times.loads) * 1e3},
      {"load_best_ms", *std::min_element(times.loads.begin(), times.loads.end()) * 1e3}};
  if (arguments.json) {
    fmt::print("{}\n", json.dump());
    return;
  }
  const auto ms = [&](const char* name) { return json[name].get<double>(); };
  fmt::print(
      "{} MB: a save blocks for {:.0f} ms and adds {:.0f} ms in all (copying in memory takes "
      "{:.0f}); durable after {:.0f} ms (a raw write and fsync: {:.0f}); loaded, verified, in "
      "{:.0f} ms\n",
      bytes / 1'000'000, ms("blocking_ms"), ms("added_ms"), ms("copy_ms"), ms("durable_ms"),
      ms("raw_write_ms"), ms("load_ms"));
}

}  // namespace

int bench_checkpoint(const BenchArguments& arguments) {
  check_checkpoint(arguments);
  const int64_t mb = 1'000'000 / (4 * kTensors) * (4 * kTensors);
  const Tensors model("", arguments.model_mb * mb),
      optimizer(".moments", 2 * arguments.model_mb * mb);
  std::vector<std::byte> copy(model.memory.size() + optimizer.memory.size());
  const BenchFolder folder(arguments.output.empty() ? folder_for_temporary_files()
                                                    : fs::path(arguments.output));
  checkpoint::Writer writer{checkpoint::Folder(folder.path, {.keep = 1})};
  int64_t step = 0;
  const auto save = [&] {
    checkpoint::Manifest manifest;
    manifest.step = ++step;
    writer.save(std::move(manifest), model.views, optimizer.views);
  };
  copy_seconds(model, optimizer, copy);  // The memory is mapped from now on.
  save();
  writer.wait();

  Work work;
  const int units = std::max(20, static_cast<int>(1.5 / (work.seconds(10) / 10)));
  CheckpointTimes times;
  for (int i = 0; i < arguments.repeats; ++i) {
    times.copies.push_back(copy_seconds(model, optimizer, copy));
    measure_saves(save, writer, work, units, folder.path, copy, times);
  }
  load_seconds(folder.path, copy);  // The first one reads from the disk.
  for (int i = 0; i < 2 * arguments.repeats; ++i)
    times.loads.push_back(load_seconds(folder.path, copy));
  print_times(arguments, copy.size(), times);
  return 0;
}

}  // namespace trireme::cli
