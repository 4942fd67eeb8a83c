// The one exception of Trireme. Its code tells the caller what to do; its message tells a person.
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>

namespace trireme {

enum class ErrorCode {
  invalid_argument,  // The caller's input is wrong: fix it.
  not_found,         // What was named does not exist.
  unsupported,       // Valid, but this build or this combination cannot do it.
  timeout,           // A wait reached its deadline.
  peer_lost,         // Another rank crashed, stopped or fell silent.
  aborted,           // This rank was told to give up because another failed.
  corrupt,           // Bytes are not what they should be (file, message).
  io,                // The operating system refused a file or socket operation.
  internal,          // A bug in Trireme.
};

std::string_view to_string(ErrorCode code);

// Message layout: "[room] rank 2/4: what happened, the value, the rule; try: the remedy".
// The rank is the calling thread's (see base/log.h) and left out while it is unknown.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string_view room, std::string_view what, std::string_view remedy = {});
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// Exit codes of every Trireme process (docs/errors.md).
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,     // Failed for good: NaN loss, no space, corrupt data.
  kExitUsage = 2,      // Wrong command line or configuration.
  kExitRetry = 138,    // Lost a process or host: run it again.
  kExitStopped = 143,  // Asked to stop; state was saved.
};

// The first line of what() of any exception: LibTorch's carry a stack trace behind it.
std::string brief(const std::exception& error);

// The exit code a process should end with after `error` reached its main function.
int exit_code_of(const Error& error);

}  // namespace trireme
