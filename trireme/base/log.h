// Log lines on standard error, each with its level and the calling thread's rank. Any thread may
// call these functions.
#pragma once
#include <fmt/format.h>
#include <string>

namespace trireme {

// Sets the rank and the world size for which the calling thread works. Threads that it starts do
// not inherit them.
void set_thread_rank(int rank, int world_size);
// Sets the rank and the world size of all threads that did not call set_thread_rank().
void set_process_rank(int rank, int world_size);
// "rank 2/4", or an empty text while the rank is unknown.
std::string rank_label();

enum class LogLevel { debug, info, warning, error };
// Drops lines below `level`. The default is info, or the value of TRIREME_LOG: debug, info,
// warning or error.
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
