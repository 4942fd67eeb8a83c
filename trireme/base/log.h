// Log lines on standard error, each with its level and the calling thread's rank. Any thread.
#pragma once
#include <fmt/format.h>
#include <string>

namespace trireme {

// Says which rank of how many the calling thread works for; threads it starts do not inherit it.
void set_thread_rank(int rank, int world_size);
// The same for every thread that has not said so itself.
void set_process_rank(int rank, int world_size);
// "rank 2/4", or empty while unknown.
std::string rank_label();

enum class LogLevel { debug, info, warning, error };
// Lines below `level` are dropped. Default: info, or TRIREME_LOG=debug|info|warning|error.
void set_log_level(LogLevel level);
void log_line(LogLevel level, const std::string& text);

template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace trireme
