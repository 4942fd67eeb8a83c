#include <trireme/base/log.h>

#include <trireme/base/standard_error.h>
#include <atomic>
#include <cstdlib>
#include <string_view>

namespace trireme {
namespace {

struct RankOf {
  int rank = -1;
  int world_size = 0;
};
thread_local RankOf thread_rank;
std::atomic<int> process_rank{-1};
std::atomic<int> process_world_size{0};

LogLevel level_from_environment() {
  const char* name = std::getenv("TRIREME_LOG");
  const std::string_view text = name ? name : "";
  if (text == "debug") return LogLevel::debug;
  if (text == "warning") return LogLevel::warning;
  if (text == "error") return LogLevel::error;
  return LogLevel::info;
}
std::atomic<LogLevel>& threshold() {
  static std::atomic<LogLevel> level{level_from_environment()};
  return level;
}
const char* name_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return "debug";
    case LogLevel::info: return "info";
    case LogLevel::warning: return "warning";
    case LogLevel::error: return "error";
  }
  return "";
}

}  // namespace

void set_thread_rank(int rank, int world_size) { thread_rank = {rank, world_size}; }
void set_process_rank(int rank, int world_size) {
  process_rank = rank;
  process_world_size = world_size;
}

std::string rank_label() {
  if (thread_rank.rank >= 0)
    return fmt::format("rank {}/{}", thread_rank.rank, thread_rank.world_size);
  if (process_rank >= 0)
    return fmt::format("rank {}/{}", process_rank.load(), process_world_size.load());
  return {};
}

void set_log_level(LogLevel level) { threshold() = level; }

void log_line(LogLevel level, const std::string& text) {
  if (level < threshold().load()) return;
  const std::string rank = rank_label();
  write_to_standard_error(
      fmt::format("trireme {}{}{}: {}\n", name_of(level), rank.empty() ? "" : " ", rank, text));
}

}  // namespace trireme
