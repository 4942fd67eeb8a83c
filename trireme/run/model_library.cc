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
#include <algorithm>
#include <cstring>
#include <fstream>
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
bool names_a_loader(std::istream& file) {
  Elf64_Ehdr header{};
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  if (!file || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    if (!file.read(reinterpret_cast<char*>(&part), sizeof part)) return false;
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

bool is_programme(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw Error(ErrorCode::not_found, "config",
                fmt::format("model.library is \"{}\", which cannot be read", path.string()),
                "the path of a shared object or of a programme");
  return names_a_loader(file);
}

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
    throw Error(
        ErrorCode::not_found, "config",
        fmt::format("model.library is \"{}\", and there is no such file", path.string()),
        "the path of a shared object or of a programme, relative to the working directory");
  const std::filesystem::path canonical = std::filesystem::canonical(path);
  if (paths.contains(canonical)) return;
  const std::string bytes = read_file(canonical);
  const auto names = registrations_in(bytes);
  const auto stands_in = [](const Registration& each) { return each.kind == "worker"; };
  if (std::ranges::all_of(names, stands_in))
    refuse_library(path, "which registers no model, data set, loss, metric or function",
                   "a shared object or a programme with TRIREME_MODEL(\"name\", factory)");
  const bool programme = is_programme(canonical);
  if (programme && std::ranges::none_of(names, stands_in))
    refuse_library(path, "which is a programme that does not call trireme::run_as_worker()",
                   "trireme::run_as_worker(argc, argv) as the first line of its main() "
                   "(docs/models.md), or a module that trireme_add_model_library() makes of its "
                   "source");
  for (const Registration& each : names)
    if (each.trireme != version())
      refuse_library(path,
                     fmt::format("which was built with Trireme {}, and this is Trireme {}",
                                 each.trireme, version()),
                     "a build of it with the headers of this Trireme");
  paths.insert(canonical);  // Its names may be known in part, also after an error.
  data::note_library(sha256_hex(bytes));
  if (!open)
    add_names(names);
  else if (!programme)
    open(canonical, names);
  else if (!std::filesystem::equivalent(canonical, "/proc/self/exe"))
    refuse_library(path, "which is another programme than this one, and cannot be opened",
                   "trireme train, which starts it, or a module that "
                   "trireme_add_model_library() makes of its source");
  config::throw_if_registration_failed();
}

bool set_library_opener(OpenLibrary open) {
  opened().open = open;
  return true;
}

}  // namespace trireme
