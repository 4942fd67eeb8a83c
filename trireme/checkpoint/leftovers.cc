#include <trireme/checkpoint/leftovers.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <unistd.h>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <vector>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kWriting = ".writing-";
constexpr std::string_view kReplaced = ".replaced-";

// When the process started, in clock ticks since boot; empty if it is gone (proc(5), /proc/PID/stat, fields 3 and 22).
std::optional<uint64_t> start_of(uint64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = stat.rfind(')');  // The name before it may hold blanks and brackets.
  if (name_end == std::string::npos) return {};
  std::istringstream fields(stat.substr(name_end + 1));
  std::string state, skipped;
  fields >> state;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  uint64_t start = 0;
  if (!(fields >> start) || state == "Z" || state == "X") return {};
  return start;
}

struct Owned {
  uint64_t pid = 0, start = 0;
  std::string name;
};

std::optional<uint64_t> take_number(std::string_view& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() + text.size() || *end != '-') return {};
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return number;
}

std::optional<Owned> parse(std::string_view kind, std::string_view file_name) {
  if (!file_name.starts_with(kind)) return {};
  file_name.remove_prefix(kind.size());
  const auto pid = take_number(file_name);
  if (!pid) return {};
  const auto start = take_number(file_name);
  if (!start || file_name.empty()) return {};
  return Owned{*pid, *start, std::string(file_name)};
}

std::string owned_name(std::string_view kind, std::string_view name) {
  const auto pid = static_cast<uint64_t>(::getpid());
  return fmt::format("{}{}-{}-{}", kind, pid, start_of(pid).value_or(0), name);
}

// Other workers of the job may be at the same entry: what they have done already is no error.
void settle(const fs::path& entry) {
  const std::string file_name = entry.filename();
  const auto writing = parse(kWriting, file_name);
  const auto replaced = parse(kReplaced, file_name);
  const auto& owned = writing ? writing : replaced;
  if (!owned || start_of(owned->pid) == owned->start) return;
  std::error_code error;
  if (const fs::path original = entry.parent_path() / owned->name; replaced && !fs::exists(original)) {
    fs::rename(entry, original, error);
    if (error && !fs::exists(original)) throw fs::filesystem_error("rename", entry, error);
    log_warning("put {} back: its replacement was cut off", original.string());
  } else {
    fs::remove_all(entry, error);
    if (error) log_warning("cannot remove {}, left by a process that is gone: {}", entry.string(), error.message());
  }
}

}  // namespace

std::string writing_name(std::string_view name) { return owned_name(kWriting, name); }
std::string replaced_name(std::string_view name) { return owned_name(kReplaced, name); }
bool is_replaced_name(std::string_view file_name) { return parse(kReplaced, file_name).has_value(); }

void clean_leftovers(const fs::path& folder) {
  // Without /proc nobody can be told to be gone.
  if (!start_of(static_cast<uint64_t>(::getpid()))) return;
  try {
    std::vector<fs::path> entries;  // Listed first: renaming while listing may show an entry twice.
    for (const auto& entry : fs::directory_iterator(folder)) entries.push_back(entry.path());
    for (const fs::path& entry : entries) settle(entry);
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorCode::io, "checkpoint",
                fmt::format("cannot clean {}: {}: {}", folder.string(), error.path1().string(), error.code().message()),
                "check who owns the folder");
  }
}

}  // namespace trireme::checkpoint
