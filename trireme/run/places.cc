#include <fmt/chrono.h>

#include <trireme/base/environment.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/checkpoint/folder.h>
#include <trireme/data/kinds/shipped_data.h>
#include <trireme/run/as_worker.h>
#include <trireme/run/libtorch_place.h>
#include <trireme/run/model_library.h>
#include <trireme/run/places.h>
#include <unistd.h>
#include <cstdlib>

namespace trireme {
namespace fs = std::filesystem;

namespace {

// It finds its LibTorch itself, but not the data that ship with this programme.
std::vector<std::string> stand_in(const fs::path& programme, const std::string& name) {
  if (::access(programme.c_str(), X_OK) != 0)
    throw Error(ErrorCode::invalid_argument, "config",
                fmt::format("model.library is {}, a programme that may not be executed",
                            programme.string()),
                fmt::format("chmod +x {}", programme.string()));
  if (const auto data = data::folder_of_shipped_data())
    setenv("TRIREME_DATA", data->c_str(), /*overwrite=*/0);
  return {programme.string(), std::string(kInPlaceOf) + name};
}

}  // namespace

std::vector<std::string> torch_command(const std::string& name, const std::string& library) {
  if (!library.empty() && is_programme(library)) return stand_in(fs::absolute(library), name);
  const fs::path own_folder = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path path = own_folder / name;
  if (!path_exists(path))
    throw Error(ErrorCode::not_found, "cli",
                fmt::format("the programme {} is missing", path.string()),
                fmt::format("build it (cmake --build build --target {}), or install "
                            "Trireme again",
                            name));
  use_libtorch(own_folder);
  return {path.string()};
}

std::string make_run_dir(const Config& config) {
  if (!config.record.dir.empty()) return config.record.dir;
  const std::string stem = fmt::format("runs/{}-{:%Y%m%d-%H%M%S}", config.data.name,
                                       fmt::localtime(std::time(nullptr)));
  std::string dir = stem;
  for (int again = 2; path_exists(dir); ++again) dir = fmt::format("{}-{}", stem, again);
  return dir;
}

std::string checkpoint_dir(const Config& config) {
  return config.trainer.checkpoint.dir.empty()
             ? (fs::path(config.record.dir) / "checkpoint").string()
             : config.trainer.checkpoint.dir;
}

bool may_lack_weights(const Config& config) {
  const Environment environment = Environment::of_process();
  if (environment.get("TRIREME_ELASTIC") && environment.get("TRIREME_WORKER")) return true;
  const bool has_folder = !config.trainer.checkpoint.dir.empty() || !config.record.dir.empty();
  return has_folder && checkpoint::has_checkpoints(checkpoint_dir(config));
}

std::filesystem::path marks_dir(const std::filesystem::path& checkpoint_dir) {
  return checkpoint_dir / "faults";
}

fs::path curve_of_evaluator(const Config& config) {
  return fs::path(config.record.dir) / "evaluator.jsonl";
}

}  // namespace trireme
