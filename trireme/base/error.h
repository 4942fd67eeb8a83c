// The one exception of Trireme. Its code tells the caller what to do; its message is for people.
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>

namespace trireme {

enum class ErrorCode {
  invalid_argument,  // An option, a value, a call or an own function is wrong, or workers differ.
  not_found,         // A file, a key, a programme or a name does not exist.
  unsupported,       // The request is valid, but not in this build or in this combination.
  timeout,           // A wait reached its deadline.
  peer_lost,         // Another worker crashed, was stopped or fell silent.
  aborted,           // This rank gave up because another one failed.
  corrupt,           // A file or a message is not what it should be.
  io,                // The operating system refused a file or a socket operation.
  internal,          // A computation cannot continue, as with a NaN, or Trireme has a mistake.
};

std::string_view to_string(ErrorCode code);

// The layout of the message is "[room] rank 2/4: what happened, the value, the rule; try: the
// remedy". The rank is the calling thread's (see base/log.h). It is left out while it is unknown.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string_view room, std::string_view what,
        std::string_view remedy = {});
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// The exit codes of every Trireme process (docs/errors.md).
enum ExitCode : int {
  kExitOk = 0,         // All went well.
  kExitFailed = 1,     // The run failed for good: a NaN loss, a full disk, damaged data.
  kExitUsage = 2,      // The command line, the configuration or a use of Trireme is wrong.
  kExitRetry = 138,    // A process or a host was lost, or a wait ended without its peer.
  kExitStopped = 143,  // The process was asked to stop by SIGINT, SIGTERM or SIGHUP.
};

// The first line of what(). The exceptions of LibTorch carry a stack trace behind it.
std::string brief(const std::exception& error);

// The exit code with which a process should end after `error` has reached its main function.
int exit_code_of(const Error& error);

}  // namespace trireme
