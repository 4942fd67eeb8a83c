// `trireme ckpt`: looks into checkpoints without LibTorch.
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/checkpoint/folder.h>
#include <trireme/cli/commands.h>

namespace trireme::cli {
namespace {

Json to_json(const checkpoint::Saved& saved) {
  Json tensors = Json::array();
  for (const auto& tensor : saved.model->tensors())
    tensors.push_back({{"name", tensor.spec.name}, {"shape", tensor.spec.shape}, {"dtype", plan::to_string(tensor.spec.dtype)}});
  return {{"path", saved.path.string()},
          {"version", saved.manifest.version},
          {"step", saved.manifest.step},
          {"epoch", saved.manifest.position.epoch},
          {"consumed", saved.manifest.position.consumed},
          {"files", saved.manifest.files},
          {"aliases", saved.manifest.aliases},
          {"optimizer", saved.manifest.optimizer.value("kind", "")},
          {"tensors", tensors}};
}

void print(const checkpoint::Saved& saved) {
  const checkpoint::Manifest& manifest = saved.manifest;
  fmt::print("{}: whole (hashes hold), written by Trireme {}\n", saved.path.string(), manifest.version);
  fmt::print("step {}, epoch {}, {} samples into it; optimizer {}\n", manifest.step, manifest.position.epoch, manifest.position.consumed,
             manifest.optimizer.value("kind", "unknown"));
  if (!manifest.loss_history.empty()) fmt::print("loss of the last step {:.6g}\n", manifest.loss_history.back());
  int64_t elements = 0, bytes = 0;
  for (const auto& tensor : saved.model->tensors()) {
    fmt::print("  {:<40} {}\n", tensor.spec.name, tensor.spec.describe());
    elements += tensor.spec.elements();
    bytes += tensor.spec.bytes();
  }
  for (const auto& [alias, name] : manifest.aliases) fmt::print("  {:<40} the same as {}\n", alias, name);
  fmt::print("{} tensors, {} elements, {}\n", saved.model->tensors().size(), elements, format_bytes(bytes));
}

int inspect(const std::string& path, bool json) {
  const bool single = std::filesystem::exists(std::filesystem::path(path) / "manifest.json");
  std::optional<checkpoint::Saved> saved;
  if (single)
    saved = checkpoint::open_checkpoint(path);
  else if (checkpoint::has_checkpoints(path))
    saved = checkpoint::newest_in(path);
  if (!saved)
    throw Error(ErrorCode::not_found, "cli", fmt::format("{} holds no checkpoint", path),
                "the folder given as checkpoint.dir, or one step-... folder in it");
  if (json)
    fmt::print("{}\n", to_json(*saved).dump(2));
  else
    print(*saved);
  return kExitOk;
}

}  // namespace

void add_ckpt(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("ckpt", "Look into checkpoints");
  command->require_subcommand(1);
  CLI::App* inspect_command = command->add_subcommand("inspect", "Verify a checkpoint (or the newest of a folder) and list what it holds");
  auto path = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  inspect_command->add_option("path", *path, "A checkpoint folder (checkpoint.dir) or one checkpoint in it")->required();
  inspect_command->add_flag("--json", *json, "As JSON");
  inspect_command->footer("Example: trireme ckpt inspect runs/digits-20260131-101500/checkpoint");
  inspect_command->callback([path, json, &action] { action = [path, json] { return inspect(*path, *json); }; });
}

}  // namespace trireme::cli
