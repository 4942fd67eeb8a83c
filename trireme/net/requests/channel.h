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
  FrameWriter::Outcome send(std::vector<std::byte> front, const Message& message,
                            Deadline deadline, const std::function<void()>& while_waiting);

  // The period in which tick() wants to be called.
  Milliseconds tick_period() const;
  // Sends a sign of life if nothing else was sent. Returns why the peer is lost, if it is; the
  // reason is empty if the peer has ended. One thread calls it. The rule of who is lost:
  //   - A peer from which nothing was heard for the limit. Bytes that this end has not read yet
  //     count as heard, because then this end is the slow one.
  //   - A client that takes no bytes for the limit. A client reads at all times, so what it sent
  //     before does not count. (A server does not read while all its threads are busy.)
  //   - A client whose connection has ended, also if no thread is free to read its last bytes.
  std::optional<std::string> tick(Deadline::Clock::time_point now);
  Milliseconds silence() const { return silence_; }

  const PeerFacts peer;
  Stream stream;
  FrameReader reader;
  FrameWriter writer;

 private:
  void say(Deadline::Clock::time_point now, bool pending);

  const Stream::Side side_;
  const Milliseconds silence_;
  uint64_t read_ = 0, written_ = 0, taken_ = 0;  // At the last tick.
  Deadline::Clock::time_point ticked_at_, heard_at_, said_at_, taken_at_;
};

// Throws Error(invalid_argument) naming the option.
void check_channel_options(const ChannelOptions& options);

}  // namespace trireme::net
