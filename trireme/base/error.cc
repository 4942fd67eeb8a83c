#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>

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
std::string layout(std::string_view room, std::string_view what, std::string_view remedy) {
  const std::string rank = rank_label();
  return fmt::format("[{}] {}{}{}{}{}", room, rank, rank.empty() ? "" : ": ", what,
                     remedy.empty() ? "" : "; try: ", remedy);
}
}  // namespace

Error::Error(ErrorCode code, std::string_view room, std::string_view what, std::string_view remedy)
    : std::runtime_error(layout(room, what, remedy)), code_(code) {}

std::string brief(const std::exception& error) {
  const std::string what = error.what();
  return what.substr(0, what.find('\n'));
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
