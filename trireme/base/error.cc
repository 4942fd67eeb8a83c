#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/log.h>
#include <cstdio>

namespace trireme {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::not_found: return "not_found";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::timeout: return "timeout";
    case ErrorCode::peer_lost: return "peer_lost";
    case ErrorCode::aborted: return "aborted";
    case ErrorCode::corrupt: return "corrupt";
    case ErrorCode::io: return "io";
    case ErrorCode::internal: return "internal";
  }
  return "internal";
}

namespace {

constexpr std::string_view kRemedy = "; try: ";

std::string layout(std::string_view room, std::string_view what, std::string_view remedy) {
  const std::string rank = rank_label();
  return fmt::format("[{}] {}{}{}{}{}", room, rank, rank.empty() ? "" : ": ", what,
                     remedy.empty() ? "" : kRemedy, remedy);
}

// The length of "[room] rank 2/4: " at the beginning of a message.
size_t length_of_prefix(const std::string& text) {
  const size_t room = text.find("] ") + 2;
  int rank = 0, size = 0, length = 0;
  return std::sscanf(text.c_str() + room, "rank %d/%d: %n", &rank, &size, &length) == 2
             ? room + static_cast<size_t>(length)
             : room;
}

}  // namespace

Error::Error(ErrorCode code, std::string_view room, std::string_view what, std::string_view remedy)
    : std::runtime_error(layout(room, what, remedy)), code_(code) {}

std::string brief(const std::exception& error) {
  const std::string what = error.what();
  return what.substr(0, what.find('\n'));
}

ErrorParts parts_of(const std::exception& error) {
  const std::string text = brief(error);
  if (dynamic_cast<const Error*>(&error) == nullptr) return {text, {}};
  const size_t start = length_of_prefix(text), end = text.rfind(kRemedy);
  if (end == std::string::npos) return {text.substr(start), {}};
  return {text.substr(start, end - start), text.substr(end + kRemedy.size())};
}

std::string more_lines_of(const std::exception& error) {
  return std::string(error.what()).substr(brief(error).size());
}

int exit_code_of(const Error& error) {
  switch (error.code()) {
    case ErrorCode::invalid_argument:
    case ErrorCode::not_found:
    case ErrorCode::unsupported: return kExitUsage;
    case ErrorCode::timeout:
    case ErrorCode::peer_lost:
    case ErrorCode::aborted: return kExitRetry;
    case ErrorCode::corrupt:
    case ErrorCode::io:
    case ErrorCode::internal: return kExitFailed;
  }
  return kExitFailed;
}

}  // namespace trireme
