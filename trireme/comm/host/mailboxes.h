// Messages between the ranks of a host, through one ring of bytes in shared memory for each
// ordered pair of ranks.
#pragma once
#include <trireme/comm/blocks.h>
#include <trireme/comm/host/host_team.h>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace trireme::comm {

// The view of one rank; one thread at a time. Every wait ends in Error(timeout |
// peer_lost | aborted).
class Mailboxes {
 public:
  Mailboxes(std::shared_ptr<HostTeam> team, Milliseconds timeout);  // COLLECTIVE.
  ~Mailboxes();

  // Copies into the ring at once as much as fits, and the rest while this rank waits in the calls
  // below. `data` must live until wait_sent() has returned for the returned number.
  uint64_t post(int to, int tag, const void* data, const MessageForm& form);
  void wait_sent(int to, uint64_t number);
  bool sent_within(int to, uint64_t number, Milliseconds patience);
  // Returns the next message of `from` with this tag. Messages with equal tags keep their order.
  Message take(int from, int tag);
  std::optional<Message> take_within(int from, int tag, Milliseconds patience);

 private:
  struct Ring;
  struct Outgoing {
    std::vector<std::byte> header;
    const std::byte* data;
    size_t bytes, written = 0;  // `written` also counts the bytes of the header.
  };
  struct Incoming {
    std::vector<std::byte> header, data;
    size_t received = 0;  // Bytes of header and data.
  };
  Ring& ring(int from, int to) const;
  std::atomic<uint32_t>& bell(int rank) const;
  bool progress();  // Moves all bytes that can be moved; true if any was.
  bool push(int to);
  bool pull(int from);
  // Returns false at the deadline.
  template <typename Done>
  bool wait_until(Done done, Deadline deadline);
  [[noreturn]] void time_out(const std::string& what) const;

  std::shared_ptr<HostTeam> team_;
  const Milliseconds timeout_;
  std::shared_ptr<net::SharedMemory> memory_;
  std::vector<std::deque<Outgoing>> outgoing_;  // By receiver.
  std::vector<uint64_t> posted_, sent_;         // By receiver: the numbers of messages so far.
  std::vector<Incoming> incoming_;              // By sender: the message that is arriving.
  std::map<std::pair<int, int>, std::deque<Message>> arrived_;  // By (sender, tag).
};

}  // namespace trireme::comm
