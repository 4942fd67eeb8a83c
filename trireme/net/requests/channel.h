// One end of an open connection between a client and a server: its bytes, its frames, the facts
// that the peer told, and the signs of life.
#pragma once
#include <trireme/net/requests/frame_reader.h>
#include <trireme/net/requests/frame_writer.h>
#include <string>

namespace trireme::net {

struct PeerFacts {
  std::string name;  // "127.0.0.1:29500 (pid 12 on node1)"
  RequestLimits limits;
  Milliseconds silence{10000};
};

class Channel {
 public:
  Channel(Descriptor socket, Stream::Side side, std::optional<Rings> rings,
          const ChannelOptions& options, PeerFacts facts);

  // Sends a frame and the message's tensors. As FrameWriter::write().
  bool send(std::vector<std::byte> front, const Message& message, Deadline deadline,
            const std::function<void()>& while_waiting);

  // The period in which tick() wants to be called.
  Milliseconds tick_period() const;
  // Sends a sign of life if nothing else was sent. Returns false if nothing was heard from the
  // peer for the limit. Bytes that this end has not read yet count as heard, because then this end
  // is the slow one. One thread calls it.
  bool tick(Deadline::Clock::time_point now);
  Milliseconds silence() const { return silence_; }

  const PeerFacts peer;
  Stream stream;
  FrameReader reader;
  FrameWriter writer;

 private:
  const Milliseconds silence_;
  uint64_t read_ = 0, written_ = 0;  // At the last tick.
  Deadline::Clock::time_point heard_at_, said_at_;
};

// Throws Error(invalid_argument) naming the option.
void check_channel_options(const ChannelOptions& options);

}  // namespace trireme::net
