// The file with the job token, for workers of one host that were given no token. Worker 0 writes
// the token and the coordinator's address where only this user can read them. The others wait for
// the file.
//
// A file whose writer has died counts as absent; the next job of that name replaces it.
#pragma once
#include <sys/types.h>
#include <trireme/base/deadline.h>
#include <trireme/base/environment.h>
#include <trireme/net/message.h>
#include <filesystem>
#include <optional>
#include <string>

namespace trireme::membership {

// Makes the folder $XDG_RUNTIME_DIR/trireme, or /tmp/trireme-UID, with mode 0700 if it does not
// exist. Throws Error(invalid_argument) if it belongs to another user or others may enter it.
std::filesystem::path token_folder(const Environment& environment);
// The name under which the launcher of an elastic job leaves its address and token.
std::string elastic_job_id(pid_t launcher);

class TokenFile {
 public:
  struct Contents {
    std::string token;
    net::Endpoint coordinator;
  };

  // Writes the file with mode 0600; no reader sees a part of it. Throws Error(invalid_argument)
  // naming the living process that holds this job id, Error(io) with the reason of a failed write.
  static TokenFile create(const std::filesystem::path& folder, const std::string& job_id,
                          const Contents& contents);
  // Returns the contents once a living process has written them, or nothing at the deadline.
  // Throws Error(invalid_argument) if other users may read or write the file.
  static std::optional<Contents> wait(const std::filesystem::path& folder,
                                      const std::string& job_id, Deadline deadline);

  // Removes the files of this user's jobs whose writers were killed. Keeps those of living jobs.
  static void clear_abandoned(const Environment& environment);

  TokenFile(TokenFile&& other) noexcept;
  TokenFile& operator=(TokenFile&&) = delete;
  ~TokenFile();  // Removes the file, if this process made it.
  const std::filesystem::path& path() const { return path_; }

 private:
  TokenFile(std::filesystem::path path, ino_t file);
  std::filesystem::path path_;
  pid_t creator_;
  ino_t file_;
};

}  // namespace trireme::membership
