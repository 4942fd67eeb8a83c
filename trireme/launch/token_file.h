// The job token of workers on one host that were given none: worker 0 writes it where only this
// user can read it, with the coordinator's address; the others wait for it.
//
// A file whose writer has died counts as absent, and the next job of that name replaces it.
#pragma once
#include <sys/types.h>
#include <trireme/base/deadline.h>
#include <trireme/base/environment.h>
#include <trireme/net/message.h>
#include <filesystem>
#include <optional>
#include <string>

namespace trireme::launch {

// $XDG_RUNTIME_DIR/trireme, or /tmp/trireme-UID. Makes it with mode 0700. Throws
// Error(invalid_argument) if it belongs to somebody else or others may enter it.
std::filesystem::path token_folder(const Environment& environment);
// Under which name the launcher of an elastic job leaves its address and token.
std::string elastic_job_id(pid_t launcher);

class TokenFile {
 public:
  struct Contents {
    std::string token;
    net::Endpoint coordinator;
  };

  // Writes the file, mode 0600, whole at once. Throws Error(invalid_argument) naming the process if
  // a living one holds that job id; Error(io) with the reason if it cannot be written.
  static TokenFile create(const std::filesystem::path& folder, const std::string& job_id,
                          const Contents& contents);
  // The contents, once a living process has written them; empty at the deadline. Throws
  // Error(invalid_argument) if the file could be read or written by others.
  static std::optional<Contents> wait(const std::filesystem::path& folder,
                                      const std::string& job_id, Deadline deadline);

  // Removes the files of this user's jobs whose writers were killed; never one of a job that lives.
  static void clear_abandoned(const Environment& environment);

  TokenFile(TokenFile&& other) noexcept;
  TokenFile& operator=(TokenFile&&) = delete;
  ~TokenFile();  // Removes the file, in the process that made it.
  const std::filesystem::path& path() const { return path_; }

 private:
  TokenFile(std::filesystem::path path, ino_t file);
  std::filesystem::path path_;
  pid_t creator_;
  ino_t file_;
};

}  // namespace trireme::launch
