// The work that a server of samples has done, as its replies tell it, and a worker's part of that.
#pragma once
#include <trireme/base/json.h>
#include <trireme/data/source.h>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace trireme::data {

// The work for one part of the data.
struct ServerWork {
  // A number of this start of the server. With another one, counts begin anew.
  uint64_t start = 0;
  int threads = 0;     // The server's threads.
  int64_t served = 0;  // The samples of the part that it has sent to all its clients.
  std::vector<StageUse> stages;
};
Json to_json(const ServerWork& work);
// Throws std::exception for a text that is none of these.
ServerWork server_work_of(const Json& json);
// {"name": "decode", "samples": ..., "seconds": ..., "ms_per_sample": ..., "bytes": ...}
Json to_json(const StageUse& stage);
// A list of these.
Json to_json(const std::vector<StageUse>& stages);

// The work of servers for a worker: of each server's work, the part that this worker's samples are
// of all that it sent meanwhile. Any thread.
class WorkForWorker {
 public:
  // A reply of `server`. The first one of a server, or of a new start of it, is where counting
  // begins, and its samples do not count.
  void note(const std::string& server, const ServerWork& work, int64_t samples);
  // One for each stage of `like`, in its order; those that no server has told are 0.
  std::vector<StageUse> stages(const std::vector<StageUse>& like) const;
  // The threads of all servers that have replied.
  int threads() const;

 private:
  struct Seen {
    ServerWork first, newest;
    int64_t received = 0;
  };
  // A server's work since its first reply.
  static std::vector<StageUse> part_of(const Seen& seen);

  mutable std::mutex mutex_;
  std::map<std::string, Seen> servers_;
  std::vector<StageUse> ended_;  // By starts of servers that are gone.
};

}  // namespace trireme::data
