// Messages between the ranks of a host. A large message is copied once: the receiver reads the
// sender's tensor, whatever the sender is doing. A receiver that waits idly sets such messages
// aside, so that no two ranks wait for each other's receives. A small message, and any message
// where the system forbids such reads, goes through a ring of bytes in shared memory, one for each
// ordered pair of ranks, straight into the receiver's tensor if that is known.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/comm/host/host_team.h>
#include <trireme/comm/message_form.h>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace trireme::comm {

// The view of one rank; one thread at a time. Every wait ends in Error(timeout | peer_lost |
// aborted).
class Mailboxes {
 public:
  struct Sending;
  struct Receiving;
  using SendingPtr = std::shared_ptr<Sending>;
  using ReceivingPtr = std::shared_ptr<Receiving>;

  // COLLECTIVE. `reads_peers`: whether receivers may read the tensors of senders.
  Mailboxes(std::shared_ptr<HostTeam> team, Milliseconds timeout, bool reads_peers = true);
  ~Mailboxes();

  // Messages with equal tags keep their order. A message through the ring moves as far as there is
  // room, and further while this rank waits in one of the calls below. The tensors live as long as
  // they are needed.
  SendingPtr send(at::Tensor tensor, int to, int tag);
  ReceivingPtr receive(at::Tensor tensor, int from, int tag);
  // Returns whether it is over after `patience`. A receive throws Error(invalid_argument) if the
  // message does not fit its tensor. The time-out begins with the message, and anew with wait().
  // Once a wait for a send has failed, nobody reads its tensor any more.
  bool wait_for(const SendingPtr& sending, Milliseconds patience);
  bool wait_for(const ReceivingPtr& receiving, Milliseconds patience);
  void wait(const SendingPtr& sending);
  void wait(const ReceivingPtr& receiving);

 private:
  struct Header;
  struct Shared;
  struct Ring;
  // A message without a receive. Its bytes are here, or still in the sender's tensor.
  struct Letter;
  struct Incoming;
  Shared& shared() const;
  Ring& ring(int from, int to) const;
  bool progress();  // Moves all bytes that can be moved; true if any was.
  bool push(int to);
  bool pull(int from);
  bool reap(int to);  // Notes messages that their receiver has read.
  void begin_body(int from);
  void end_body(int from);
  ReceivingPtr take_receive(int from, int tag);
  void hand_over(int from, const Letter& letter, Receiving& receiving);
  bool read(int from, const Header& header, void* place);
  [[noreturn]] void miss(int from, const Header& header);
  void set_aside();
  void withdraw(const Sending& sending);
  void find_readable_peers(bool reads_peers);
  int free_slot(int to);
  void ring_bell(int rank);
  template <typename Done>
  bool wait_until(Done done, Deadline deadline);  // Returns false at the deadline.
  [[noreturn]] void time_out(const std::string& what) const;

  std::shared_ptr<HostTeam> team_;
  const Milliseconds timeout_;
  std::unique_ptr<const uint64_t> number_;  // Others look for it.
  std::shared_ptr<net::SharedMemory> memory_;
  std::vector<std::deque<SendingPtr>> outgoing_;     // By receiver: not yet in the ring.
  std::vector<std::vector<SendingPtr>> unread_;      // By receiver: read from here.
  std::vector<std::unique_ptr<Incoming>> incoming_;  // By sender: the message that is arriving.
  std::list<ReceivingPtr> receives_;                 // Without a message.
  std::map<std::pair<int, int>, std::deque<Letter>> letters_;  // By (sender, tag).
};

}  // namespace trireme::comm
