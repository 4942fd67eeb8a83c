#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <trireme/base/descriptor.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/base/json.h>
#include <trireme/base/process_id.h>
#include <trireme/membership/secret_file.h>
#include <trireme/membership/token_file.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

namespace trireme::membership {
namespace {

namespace fs = std::filesystem;

constexpr Milliseconds kLookForTokenAgain{10};

[[noreturn]] void throw_errno(const std::string& what) {
  throw Error(ErrorCode::io, "membership", fmt::format("{}: {}", what, std::strerror(errno)),
              "set TRIREME_JOB_TOKEN to the same secret for all workers");
}

struct Record {
  TokenFile::Contents contents;
  ProcessId writer;
};

std::string serialize(const TokenFile::Contents& contents) {
  const ProcessId self = ProcessId::of_this_process();
  return Json{{"token", contents.token},           {"host", contents.coordinator.host},
              {"port", contents.coordinator.port}, {"pid", self.pid},
              {"started", self.started},           {"place", self.place}}
      .dump();
}

// Returns nothing if there is no file, or its text is no record.
std::optional<Record> read(const fs::path& path) {
  std::string text;
  try {
    text = read_secret_file(path, Symlink::refuse);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::not_found) return std::nullopt;
    throw;
  }
  const Json json = Json::parse(text, nullptr, false);
  try {
    return Record{{json.at("token").get<std::string>(),
                   {json.at("host").get<std::string>(), json.at("port").get<int>()}},
                  {json.at("pid").get<pid_t>(), json.at("started").get<uint64_t>(),
                   json.at("place").get<std::string>()}};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

fs::path path_of(const fs::path& folder, const std::string& job_id) {
  std::string name;
  for (const char c : job_id)
    name += std::isalnum(static_cast<unsigned char>(c)) || c == '-' ? c : '_';
  // The digest distinguishes ids that the line above makes equal, and long ids that are cut.
  return folder / fmt::format("{}.{}.token", name.substr(0, 64), sha256_hex(job_id).substr(0, 12));
}

void write_private(const fs::path& path, const std::string& text) {
  const int file =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) throw_errno("cannot make the token file " + path.string());
  const ssize_t written = ::write(file, text.data(), text.size());
  ::close(file);
  if (written == static_cast<ssize_t>(text.size())) return;
  ::unlink(path.c_str());
  throw_errno("cannot write the token file " + path.string());
}

ino_t identity_of(const fs::path& path) {
  struct stat facts {};
  return ::lstat(path.c_str(), &facts) == 0 ? facts.st_ino : 0;
}

// Gives `draft` its final name. It replaces a file whose writer has died.
void publish(const fs::path& draft, const fs::path& path, const std::string& job_id) {
  while (::link(draft.c_str(), path.c_str()) != 0) {
    if (errno != EEXIST) throw_errno("cannot make the token file " + path.string());
    const auto holder = read(path);
    if (holder && holder->writer.lives())
      throw Error(ErrorCode::invalid_argument, "membership",
                  fmt::format("job '{}' is running already: process {} wrote {}", job_id,
                              holder->writer.pid, path.string()),
                  "another id for this job, or end the other job");
    if (::unlink(path.c_str()) != 0 && errno != ENOENT)
      throw_errno("cannot replace the token file " + path.string());
  }
}

// Files are made and removed only under this lock. So a draft that is found under it was left
// behind.
Descriptor lock_of(const fs::path& folder) {
  Descriptor lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock || ::flock(lock.get(), LOCK_EX) != 0) throw_errno("cannot lock " + folder.string());
  return lock;
}

// Removes the files whose writers were killed. No process reads them, but they would accumulate.
// It keeps the file of a writer that cannot be seen from here: that one may live. The caller has
// the lock.
void remove_of_the_dead(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    try {
      const bool is_draft = entry.path().stem().extension() == ".token";
      if (!is_draft && entry.path().extension() != ".token") continue;
      const auto record = is_draft ? std::nullopt : read(entry.path());
      if (is_draft || (record && record->writer.is_here() && !record->writer.lives()))
        fs::remove(entry.path(), ignored);
    } catch (const Error&) {  // A file that cannot be read stays.
    }
  }
}

fs::path token_folder_name(const Environment& environment) {
  const auto runtime = environment.get("XDG_RUNTIME_DIR");
  const bool usable = runtime && !runtime->empty() && fs::is_directory(*runtime);
  return usable ? fs::path(*runtime) / "trireme"
                : fs::path(fmt::format("/tmp/trireme-{}", ::geteuid()));
}

}  // namespace

std::string elastic_job_id(pid_t launcher) { return "elastic-" + std::to_string(launcher); }

fs::path token_folder(const Environment& environment) {
  const fs::path folder = token_folder_name(environment);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw_errno("cannot make the folder " + folder.string());
  struct stat facts {};
  if (::lstat(folder.c_str(), &facts) != 0)
    throw_errno("cannot look at the folder " + folder.string());
  if (!S_ISDIR(facts.st_mode) || facts.st_uid != ::geteuid() || (facts.st_mode & 077) != 0)
    throw Error(ErrorCode::invalid_argument, "membership",
                fmt::format("{} is not a folder for this user alone (owner {}, mode {:04o})",
                            folder.string(), facts.st_uid, facts.st_mode & 07777),
                "remove it, or set TRIREME_JOB_TOKEN to the same secret for all workers");
  return folder;
}

TokenFile TokenFile::create(const fs::path& folder, const std::string& job_id,
                            const Contents& contents) {
  const fs::path path = path_of(folder, job_id);
  const Descriptor lock = lock_of(folder);
  remove_of_the_dead(folder);
  // The file has another name while it is written, so that no process reads half of it.
  const fs::path draft = path.string() + fmt::format(".{}", ::getpid());
  ::unlink(draft.c_str());
  write_private(draft, serialize(contents));
  try {
    publish(draft, path, job_id);
  } catch (...) {
    ::unlink(draft.c_str());
    throw;
  }
  ::unlink(draft.c_str());
  return TokenFile(path, identity_of(path));
}

std::optional<TokenFile::Contents> TokenFile::wait(const fs::path& folder,
                                                   const std::string& job_id, Deadline deadline) {
  const fs::path path = path_of(folder, job_id);
  for (;;) {
    if (const auto record = read(path); record && record->writer.lives()) return record->contents;
    if (deadline.expired()) return std::nullopt;
    std::this_thread::sleep_for(std::min(kLookForTokenAgain, deadline.remaining()));
  }
}

void TokenFile::clear_abandoned(const Environment& environment) {
  try {
    const fs::path folder = token_folder_name(environment);
    if (!fs::is_directory(folder)) return;
    const Descriptor lock = lock_of(folder);
    remove_of_the_dead(folder);
  } catch (const std::exception&) {  // A process that needs the folder will report the failure.
  }
}

TokenFile::TokenFile(fs::path path, ino_t file)
    : path_(std::move(path)), creator_(::getpid()), file_(file) {}

TokenFile::TokenFile(TokenFile&& other) noexcept
    : path_(std::move(other.path_)), creator_(other.creator_), file_(other.file_) {
  other.path_.clear();
}

TokenFile::~TokenFile() {
  if (path_.empty() || creator_ != ::getpid()) return;
  if (identity_of(path_) == file_) ::unlink(path_.c_str());
}

}  // namespace trireme::membership
