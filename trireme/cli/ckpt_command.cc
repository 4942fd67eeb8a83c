// `trireme ckpt`: inspects, compares, converts and prunes checkpoints, without LibTorch.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/units.h>
#include <trireme/checkpoint/name_rules.h>
#include <trireme/checkpoint/open_checkpoint.h>
#include <trireme/checkpoint/step_name.h>
#include <trireme/checkpoint/tensor_file.h>
#include <trireme/cli/commands.h>
#include <trireme/cli/output_file.h>
#include <map>
#include <optional>

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

struct CkptArguments {
  std::string path, other;
  checkpoint::RetentionOptions retention;
  std::vector<std::string> rename, drop, modules;
  bool json = false, archive = false;
};

using StoredTensors = std::vector<checkpoint::StoredTensor>;

// The evaluation at the checkpoint's step; an empty object if there was none.
Json evaluation_of(const checkpoint::Manifest& manifest) {
  const auto found = manifest.extra.find("evaluation");
  return found != manifest.extra.end() && found->is_object() ? *found : Json::object();
}

// Calls visit(part, rank) for each slice that is not a whole tensor. The rank is -1 if no rank is
// known to have written it.
template <typename Visit>
void for_each_slice(const checkpoint::Saved& saved, Visit visit) {
  for (const char* const kind : {checkpoint::kModelFile, checkpoint::kOptimizerFile})
    for (const auto& tensor : checkpoint::catalogue_of(saved, kind))
      for (const checkpoint::StoredPart& part : tensor.parts) {
        if (part.slice.is_whole()) continue;
        const auto writer = saved.manifest.writers.find(part.file);
        visit(part, writer == saved.manifest.writers.end() ? -1 : writer->second);
      }
}

Json to_json(const checkpoint::Saved& saved) {
  Json tensors = Json::array(), slices = Json::array();
  for (const auto& tensor : checkpoint::catalogue_of(saved, checkpoint::kModelFile))
    tensors.push_back({{"name", tensor.spec.name},
                       {"shape", tensor.spec.shape},
                       {"dtype", plan::to_string(tensor.spec.dtype)}});
  for_each_slice(saved, [&](const checkpoint::StoredPart& part, int rank) {
    slices.push_back({{"tensor", part.slice.tensor},
                      {"from", part.slice.from},
                      {"sizes", part.slice.sizes},
                      {"file", part.file},
                      {"rank", rank}});
  });
  return {{"path", saved.path.string()},
          {"version", saved.manifest.version},
          {"step", saved.manifest.step},
          {"epoch", saved.manifest.position.epoch},
          {"consumed", saved.manifest.position.consumed},
          {"files", saved.manifest.files},
          {"aliases", saved.manifest.aliases},
          {"optimizer", saved.manifest.optimizer.value("kind", "")},
          {"evaluation", evaluation_of(saved.manifest)},
          {"tensors", tensors},
          {"slices", slices}};
}

// "loss 0.31, accuracy 0.9, rmse 0.2"; empty without an evaluation.
std::string evaluation_text(const checkpoint::Manifest& manifest) {
  std::vector<std::string> names = {"loss", "accuracy"}, values;
  const Json found = evaluation_of(manifest);
  if (const auto metrics = found.find("metrics"); metrics != found.end() && metrics->is_object())
    for (const auto& [name, value] : metrics->items()) names.push_back(name);
  for (const std::string& name : names)
    if (const auto value = checkpoint::evaluated(manifest, name))
      values.push_back(fmt::format("{} {:.6g}", name, *value));
  return fmt::format("{}", fmt::join(values, ", "));
}

void print(const checkpoint::Saved& saved) {
  const checkpoint::Manifest& manifest = saved.manifest;
  fmt::print("{}: whole (all hashes match), written by Trireme {}\n", saved.path.string(),
             manifest.version);
  fmt::print("step {}, epoch {}, {} samples into it; optimizer {}\n", manifest.step,
             manifest.position.epoch, manifest.position.consumed,
             manifest.optimizer.value("kind", "unknown"));
  if (!manifest.loss_history.empty())
    fmt::print("loss of the last step {:.6g}\n", manifest.loss_history.back());
  if (const std::string found = evaluation_text(manifest); !found.empty())
    fmt::print("on the held-out samples: {}\n", found);
  int64_t elements = 0, bytes = 0;
  const StoredTensors tensors = checkpoint::catalogue_of(saved, checkpoint::kModelFile);
  for (const auto& tensor : tensors) {
    fmt::print("  {:<40} {}\n", tensor.spec.name, tensor.spec.describe());
    elements += tensor.spec.elements();
    bytes += tensor.spec.bytes();
  }
  for (const auto& [alias, name] : manifest.aliases)
    fmt::print("  {:<40} the same as {}\n", alias, name);
  fmt::print("{} tensors, {} elements, {}\n", tensors.size(), elements, format_bytes(bytes));
  for_each_slice(saved, [](const checkpoint::StoredPart& part, int rank) {
    fmt::print("  {:<40} rank {}, {}\n", part.slice.describe(), rank, part.file);
  });
}

int inspect(const CkptArguments& arguments) {
  const checkpoint::Saved saved = checkpoint::open_saved(arguments.path);
  if (arguments.json)
    fmt::print("{}\n", to_json(saved).dump(2));
  else
    print(saved);
  return kExitOk;
}

// Verifies each checkpoint of a folder, or a single one.
int verify(const CkptArguments& arguments) {
  std::vector<fs::path> paths;
  if (path_exists(fs::path(arguments.path) / checkpoint::kManifestFile) ||
      checkpoint::step_of_name(fs::path(arguments.path).filename()))
    paths.emplace_back(arguments.path);
  else if (checkpoint::has_checkpoints(arguments.path))
    for (const int64_t step : checkpoint::steps_in(checkpoint::disk(), arguments.path))
      paths.push_back(fs::path(arguments.path) / checkpoint::name_of_step(step));
  // Throws an error that says what is missing.
  if (paths.empty()) checkpoint::open_saved(arguments.path);
  int code = kExitOk;
  for (const fs::path& path : paths) {
    try {
      const auto saved = checkpoint::open_checkpoint(path);
      fmt::print("{}: whole, {} files\n", path.string(), saved.manifest.files.size() + 1);
    } catch (const Error& error) {
      fmt::print("{}: {}\n", path.string(), error.what());
      code = kExitFailed;
    }
  }
  return code;
}

int diff(const CkptArguments& arguments) {
  const auto a = checkpoint::open_tensors(arguments.path),
             b = checkpoint::open_tensors(arguments.other);
  const auto lines = checkpoint::differences(a, b);
  for (const std::string& line : lines) fmt::print("{}\n", line);
  if (lines.empty()) fmt::print("the same {} tensors\n", a.tensors.size());
  return lines.empty() ? kExitOk : kExitFailed;
}

// The ties between the names that are left. The first name that is left has the storage.
std::map<std::string, std::string> ties_of(const checkpoint::TensorFile& file,
                                           const StoredTensors& all,
                                           const std::vector<std::optional<std::string>>& names) {
  std::map<std::string, std::string> ties, first;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!names[i]) continue;
    const auto alias = file.aliases.find(all[i].spec.name);
    const std::string& owner = alias != file.aliases.end() ? alias->second : all[i].spec.name;
    const auto [found, is_first] = first.emplace(owner, *names[i]);
    if (!is_first) ties[*names[i]] = found->second;
  }
  return ties;
}

int convert(const CkptArguments& arguments) {
  const fs::path to = arguments.other;
  const std::string kind = to.extension();
  if (kind != ".pt" && kind != ".pth" && kind != ".safetensors")
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("{} is neither a .pt (or .pth) nor a .safetensors file", to.string()),
                "a name that ends in one of these");
  if (arguments.archive && kind == ".safetensors")
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("--archive writes PyTorch's file, and {} is none", to.string()),
                "a name that ends in .pt or .pth");
  if (!arguments.modules.empty() && !arguments.archive)
    throw Error(ErrorCode::invalid_argument, "cli", "--module is for archives alone",
                "--archive --module " + arguments.modules[0]);
  require_place_of("the file", to);
  checkpoint::NameRules rules{.drop = arguments.drop};
  for (const std::string& rule : arguments.rename)
    rules.rename.push_back(checkpoint::read_rename("--rename", rule));
  const auto file = checkpoint::open_tensors(arguments.path);
  const StoredTensors all = checkpoint::all_tensors(file);
  std::vector<std::string> old_names;
  for (const auto& tensor : all) old_names.push_back(tensor.spec.name);
  const auto names = checkpoint::renamed(rules, old_names);
  StoredTensors tensors;
  std::vector<plan::TensorSpec> specs;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!names[i]) continue;
    tensors.push_back(all[i]);
    specs.push_back(all[i].spec);
    specs.back().name = *names[i];
  }
  // Slices are put together tensor by tensor.
  std::vector<std::byte> memory;
  const auto bytes_of = [&](size_t i) { return checkpoint::assemble(tensors[i], memory); };
  if (kind == ".safetensors")
    checkpoint::write_safetensors(to, specs, bytes_of, {{"format", "pt"}});
  else if (arguments.archive)
    checkpoint::write_module_archive(to, specs, bytes_of, ties_of(file, all, names),
                                     arguments.modules);
  else
    checkpoint::write_pytorch(to, specs, bytes_of, ties_of(file, all, names));
  fmt::print("{}: {} tensors\n", to.string(), specs.size());
  return kExitOk;
}

int prune(const CkptArguments& arguments) {
  if (!checkpoint::has_checkpoints(arguments.path)) checkpoint::open_saved(arguments.path);
  checkpoint::Folder folder(arguments.path, arguments.retention);
  for (const int64_t step : folder.prune())
    fmt::print("removed {}\n", folder.path_of(step).string());
  return kExitOk;
}

}  // namespace

void add_ckpt(Command app) {
  Command command = app.subcommand("ckpt", "Inspect, compare, convert and prune checkpoints");
  command.examples({"trireme ckpt inspect runs/digits-20260131-101500/checkpoint",
                    "trireme ckpt convert runs/mine/checkpoint model.pt"});
  auto arguments = std::make_shared<CkptArguments>();
  const auto add = [&](const char* name, const char* what, const char* example,
                       int (*run)(const CkptArguments&)) {
    Command added = command.subcommand(name, what);
    added.examples({fmt::format("trireme ckpt {}", example)});
    added.action([arguments, run] { return run(*arguments); });
    return added;
  };
  Command added =
      add("inspect", "Verify a checkpoint (or the newest of a folder) and list its content",
          "inspect runs/digits-20260131-101500/checkpoint", inspect);
  added.required("path", arguments->path,
                 "A checkpoint folder (checkpoint.dir) or one checkpoint in it");
  added.flag("--json", arguments->json, "Print JSON");

  added =
      add("verify",
          "Compare every file of a checkpoint, or of all of a folder, with its hash; exit code "
          "1 if one is damaged",
          "verify runs/mine/checkpoint", verify);
  added.required("path", arguments->path, "A checkpoint folder or one checkpoint in it");

  added = add("diff", "Compare the tensors of two models; exit code 1 if they differ",
              "diff runs/a/checkpoint model.pt", diff);
  added.required("a", arguments->path,
                 "A checkpoint, a checkpoint folder, a .safetensors or a .pt file");
  added.required("b", arguments->other, "Another one");

  added = add("convert",
              "Write a model's tensors for others: PyTorch's state dict (.pt) or .safetensors",
              "convert runs/mine/checkpoint model.pt", convert);
  added.required("from", arguments->path,
                 "A checkpoint, a checkpoint folder, a .safetensors or a .pt file");
  added.required("to", arguments->other,
                 "A file .pt, .pth or .safetensors; replaced if it is there");
  added.repeated(
      "--rename", arguments->rename,
      "REGEX=REPLACEMENT: other names, such as '^module\\.=' or '^fc\\.=head.'; applied "
      "in order; may be repeated");
  added.repeated("--drop", arguments->drop,
                 "REGEX: leave these tensors out, by their names in the file; may be repeated");
  added.flag("--archive", arguments->archive,
             "Write the .pt as an archive of a module, which torch::load reads in C++, instead of "
             "a state dict");
  added.repeated("--module", arguments->modules,
                 "With --archive: a module of the model that has no tensors, by its name; may be "
                 "repeated");

  added = add("prune", "Remove old checkpoints, never the newest whole one",
              "prune runs/mine/checkpoint --keep 1", prune);
  added.required("path", arguments->path, "A checkpoint folder that no job uses");
  added.option("--keep", arguments->retention.keep,
               "Number of newest checkpoints to keep (default 2)");
  added.option("--keep-every", arguments->retention.keep_every,
               "Also keep checkpoints whose step is a multiple of this number");
  added.option("--keep-best", arguments->retention.keep_best,
               "Also keep this many with the best checkpoint.measure of the run");
}

}  // namespace trireme::cli
