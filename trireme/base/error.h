// The one exception of Trireme. Its code tells the caller what to do; its message is for people.
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>

namespace trireme {

enum class ErrorCode {
  invalid_argument,  // The caller's input is wrong: fix it.
  not_found,         // A file, name or address does not exist.
  unsupported,       // The request is valid, but this build or this combination cannot do it.
  timeout,           // A wait reached its deadline.
  peer_lost,         // Another rank crashed, stopped or fell silent.
  aborted,           // This rank was told to give up because another failed.
  corrupt,           // A file or a message does not hold the bytes that it should.
  io,                // The operating system refused a file or socket operation.
  internal,          // A bug in Trireme.
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
  kExitOk = 0,
  kExitFailed = 1,     // The process failed for good: NaN loss, no space, corrupt data.
  kExitUsage = 2,      // The command line or the configuration is wrong.
  kExitRetry = 138,    // A process or a host was lost: run the command again.
  kExitStopped = 143,  // The process was asked to stop, and its state was saved.
};

// The first line of what(). The exceptions of LibTorch carry a stack trace behind it.
std::string brief(const std::exception& error);

// The exit code with which a process should end after `error` has reached its main function.
int exit_code_of(const Error& error);

}  // namespace trireme
