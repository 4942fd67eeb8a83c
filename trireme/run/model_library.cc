#include <elf.h>
#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/hash.h>
#include <trireme/base/version.h>
#include <trireme/config/registration.h>
#include <trireme/data/data_kinds.h>
#include <trireme/data/service/facts.h>
#include <trireme/models/shapes.h>
#include <trireme/run/model_library.h>
#include <trireme/train/own_names.h>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>

namespace trireme {
namespace {

// The marks in trireme/register.h. (Written apart, so that this file's own object has none.)
constexpr std::string_view kMark = "\x1etrireme:";
constexpr char kEnd = '\x1f';
constexpr size_t kLongestName = 256;

struct Opened {
  std::mutex mutex;
  std::set<std::filesystem::path> paths;
  OpenLibrary open = nullptr;
};
Opened& opened() {
  static Opened only;
  return only;
}

[[noreturn]] void refuse_library(const std::filesystem::path& path, const std::string& what,
                                 const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "config",
              fmt::format("model.library is \"{}\", {}", path.string(), what), remedy);
}

// Whether an ELF file names a loader for itself, as programmes do. The system opens no programme
// as a library.
bool is_programme(const std::string& bytes) {
  Elf64_Ehdr header;
  if (bytes.size() < sizeof header || !bytes.starts_with(ELFMAG)) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part;
    const size_t at = header.e_phoff + i * sizeof part;
    if (at > bytes.size() - sizeof part) return false;
    std::memcpy(&part, bytes.data() + at, sizeof part);
    if (part.p_type == PT_INTERP) return true;
  }
  return false;
}

// Only the worker can read such data.
void add_data_name(const std::string& name) {
  data::add_kind({.name = name, .read = [name](const data::DataOptions&) -> data::Dataset {
                    throw Error(ErrorCode::unsupported, "config",
                                fmt::format("data.name is {}, which a shared object registers: "
                                            "only a process with LibTorch can read it",
                                            name),
                                "trireme train, which starts one");
                  }});
}

void add_names(const std::vector<Registration>& all) {
  for (const auto& [kind, name, torch, trireme] : all) {
    if (kind == "model") models::add_model(name);
    if (kind == "data") add_data_name(name);
    if (kind == "loss") add_loss_name(name);
    if (kind == "metric") add_metric_name(name);
  }
}

}  // namespace

std::vector<Registration> registrations_in(const std::string& bytes) {
  std::vector<Registration> found;
  for (size_t at = bytes.find(kMark); at != std::string::npos; at = bytes.find(kMark, at + 1)) {
    const size_t begin = at + kMark.size(), end = bytes.find(kEnd, begin);
    if (end == std::string::npos || end - begin > kLongestName) continue;
    const std::string entry = bytes.substr(begin, end - begin);
    if (entry.find(kMark.front()) != std::string::npos) continue;
    const size_t first = entry.find(':'), last = entry.rfind(':');
    const size_t middle = last != std::string::npos && last > 0 ? entry.rfind(':', last - 1) : 0;
    if (first < middle && middle != std::string::npos)
      found.push_back({entry.substr(0, first), entry.substr(first + 1, middle - first - 1),
                       entry.substr(middle + 1, last - middle - 1), entry.substr(last + 1)});
  }
  return found;
}

void use_model_library(const std::filesystem::path& path) {
  auto& [mutex, paths, open] = opened();
  const std::lock_guard lock(mutex);
  if (!path_exists(path))
    throw Error(ErrorCode::not_found, "config",
                fmt::format("model.library is \"{}\", and there is no such file", path.string()),
                "the shared object's path, relative to the working directory");
  const std::filesystem::path canonical = std::filesystem::canonical(path);
  if (paths.contains(canonical)) return;
  const std::string bytes = read_file(canonical);
  if (is_programme(bytes))
    refuse_library(path, "which is a programme, and only a shared object can be opened",
                   "the programme itself, which reads configurations with the names that it "
                   "registers, or a module that trireme_add_model_library() makes of its source");
  const auto names = registrations_in(bytes);
  if (names.empty())
    refuse_library(path, "which registers no model, data set, loss, metric or function",
                   "a shared object with TRIREME_MODEL(\"name\", factory)");
  for (const Registration& each : names)
    if (each.trireme != version())
      refuse_library(path,
                     fmt::format("which was built with Trireme {}, and this is Trireme {}",
                                 each.trireme, version()),
                     "a build of it with the headers of this Trireme");
  paths.insert(canonical);  // Its names may be known in part, also after an error.
  data::note_library(sha256_hex(bytes));
  open ? open(canonical, names) : add_names(names);
  config::throw_if_registration_failed();
}

bool set_library_opener(OpenLibrary open) {
  opened().open = open;
  return true;
}

}  // namespace trireme
