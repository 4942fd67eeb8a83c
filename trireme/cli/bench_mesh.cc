#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/cli/bench_mesh.h>
#include <trireme/plan/mesh_plan.h>
#include <charconv>

namespace trireme::cli {
namespace {

[[noreturn]] void refuse_axis(std::string_view axis) {
  throw Error(ErrorCode::invalid_argument, "cli", fmt::format("--mesh has \"{}\"", axis),
              "data=N, pipeline=N or tensor=N, with commas between them");
}

int* axis_of(plan::MeshOptions& mesh, std::string_view name) {
  if (name == plan::kDataAxis) return &mesh.data;
  if (name == plan::kPipelineAxis) return &mesh.pipeline;
  if (name == plan::kTensorAxis) return &mesh.tensor;
  return nullptr;
}

void set_axis(plan::MeshOptions& mesh, std::string_view text) {
  const size_t sign = text.find('=');
  int* const size = sign == std::string_view::npos ? nullptr : axis_of(mesh, text.substr(0, sign));
  if (size == nullptr) refuse_axis(text);
  const std::string_view number = text.substr(sign + 1);
  const auto read = std::from_chars(number.data(), number.data() + number.size(), *size);
  if (read.ec != std::errc() || read.ptr != number.data() + number.size() || *size < 1)
    refuse_axis(text);
}

}  // namespace

void BenchMesh::add_to(Command command, bool described) {
  const auto text = [described](const char* meaning) { return described ? meaning : ""; };
  command.option("--mesh", axes,
                 text("Divide the model among the ranks, e.g. pipeline=2 or pipeline=2,data=2"));
  command.option("--schedule", schedule, text("The schedule of the stages (default 1f1b)"));
  command.option("--microbatches", microbatches,
                 text("Micro-batches of a step (default: four for each stage)"));
  command.option("--chunks", chunks, text("Parts of the model on each stage"));
  command.option("--cut", cut, text("Where the model is cut, as pipeline.cut (default auto)"));
  command.option("--shard-level", shard_level,
                 text("State that replicas divide among them: 1, 2 or 3 (docs/sharding.md)"));
  command.option("--optimizer", optimizer, text("sgd (default, with momentum) or adam"));
  command.option("--memory-policy", memory_policy,
                 text("Where activations are, as memory.policy: none, recompute, swap or auto"));
  command.option("--memory-budget", memory_budget, text("Activations of a replica, e.g. 64MB"));
  command.option("--swap-dir", swap_dir, text("The folder of swapped activations"));
}

std::vector<std::string> BenchMesh::words() const {
  std::vector<std::string> words = {"--optimizer", optimizer};
  if (has_memory_policy()) {
    words.insert(words.end(),
                 {"--memory-policy", memory_policy, "--memory-budget", memory_budget});
    if (!swap_dir.empty()) words.insert(words.end(), {"--swap-dir", swap_dir});
  }
  if (!is_wanted()) return words;
  if (!axes.empty()) words.insert(words.end(), {"--mesh", axes});
  words.insert(words.end(), {"--schedule", schedule, "--microbatches",
                             std::to_string(microbatches), "--chunks", std::to_string(chunks),
                             "--cut", cut, "--shard-level", std::to_string(shard_level)});
  return words;
}

plan::DivisionOptions BenchMesh::division() const {
  plan::DivisionOptions division;
  for (size_t from = 0; from < axes.size();) {
    const size_t to = std::min(axes.find(',', from), axes.size());
    set_axis(division.mesh, std::string_view(axes).substr(from, to - from));
    from = to + 1;
  }
  if (shard_level < 0 || shard_level > 3)
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("--shard-level is {}", shard_level), "0, 1, 2 or 3");
  if (optimizer != "sgd" && optimizer != "adam")
    throw Error(ErrorCode::invalid_argument, "cli", fmt::format("--optimizer is {}", optimizer),
                "sgd or adam");
  division.pipeline = {schedule, microbatches, chunks, cut};
  division.shard.level = shard_level;
  plan::pipeline_of(division);
  return division;
}

MemoryOptions BenchMesh::memory() const {
  MemoryOptions memory;
  memory.policy = memory_policy;
  memory.budget = parse_bytes(memory_budget);
  memory.swap_dir = swap_dir;
  check(memory);
  return memory;
}

}  // namespace trireme::cli
