#include <fmt/format.h>
#include <trireme/base/units.h>
#include <trireme/net/requests/channel.h>
#include <algorithm>

namespace trireme::net {

Channel::Channel(Descriptor socket, Stream::Side side, std::optional<Rings> rings,
                 const ChannelOptions& options, PeerFacts facts)
    : peer(std::move(facts)),
      stream(std::move(socket), side, std::move(rings)),
      reader(options.limits),
      writer(stream),
      side_(side),
      silence_(options.silence),
      ticked_at_(Deadline::Clock::now()),
      heard_at_(ticked_at_),
      said_at_(ticked_at_),
      taken_at_(ticked_at_) {}

FrameWriter::Outcome Channel::send(std::vector<std::byte> front, const Message& message,
                                   Deadline deadline, const std::function<void()>& while_waiting) {
  std::vector<iovec> pieces;
  pieces.reserve(1 + message.tensors.size());
  pieces.push_back({front.data(), front.size()});
  for (const Message::Tensor& tensor : message.tensors)
    if (tensor.note.bytes > 0)
      pieces.push_back({const_cast<void*>(tensor.data), tensor.note.bytes});
  return writer.write(pieces, deadline, while_waiting);
}

Milliseconds Channel::tick_period() const {
  return std::clamp(std::min(silence_, peer.silence) / 6, Milliseconds(5), Milliseconds(250));
}

void Channel::say(Deadline::Clock::time_point now, bool pending) {
  if (written_ == writer.total()) {
    if (pending) return writer.flush();
    if (now - said_at_ < std::min(silence_, peer.silence) / 6) return;
    writer.post(encode_bare(FrameKind::alive, 0));
  }
  written_ = writer.total();
  said_at_ = now;
}

std::optional<std::string> Channel::tick(Deadline::Clock::time_point now) {
  // The kernel may keep an acknowledgement back, or send bytes again, for about 200 ms.
  constexpr Milliseconds kLeastToTake{500};
  const bool to_client = side_ == Stream::Side::server;
  if (to_client && stream.peer_ended()) return "";
  // A late tick shows that this process itself did not run. It knows nothing of its peer then.
  if (now - ticked_at_ > silence_ / 2) heard_at_ = taken_at_ = now;
  ticked_at_ = now;
  const bool pending = writer.pending();
  const uint64_t total = writer.total(), on_the_way = stream.on_the_way(total);
  if (total - on_the_way != taken_ || (!pending && on_the_way == 0)) {
    taken_ = total - on_the_way;
    taken_at_ = now;
  }
  say(now, pending);
  if (read_ != reader.total() || stream.unread()) {
    read_ = reader.total();
    heard_at_ = now;
  }
  if (to_client && now - taken_at_ > std::max(silence_, kLeastToTake))
    return fmt::format("it took no bytes for {}",
                       format_duration(std::max(silence_, kLeastToTake)));
  if (now - heard_at_ > silence_)
    return fmt::format("nothing was heard from {} for {}", to_client ? "it" : "the server",
                       format_duration(silence_));
  return std::nullopt;
}

void check_channel_options(const ChannelOptions& options) {
  const auto refuse_option = [](std::string_view name, const std::string& value,
                                std::string_view rule) {
    throw Error(ErrorCode::invalid_argument, "net",
                fmt::format("ChannelOptions::{} is {}", name, value), rule);
  };
  if (options.silence < Milliseconds(30))
    refuse_option("silence", format_duration(options.silence), "30 ms or more");
  if (options.spin < std::chrono::microseconds(0) || options.spin > std::chrono::milliseconds(10))
    refuse_option("spin", fmt::format("{} us", options.spin.count()), "0 to 10,000 us");
  if (options.ring_bytes < 4096 || options.ring_bytes > int64_t{1} << 30)
    refuse_option("ring_bytes", format_bytes(options.ring_bytes), "4 KiB to 1 GiB");
  if (options.limits.max_header_bytes < 64 || options.limits.max_header_bytes > int64_t{1} << 30)
    refuse_option("limits.max_header_bytes", format_bytes(options.limits.max_header_bytes),
                  "64 B to 1 GiB");
  if (options.limits.max_payload_bytes < 0 || options.limits.max_payload_bytes > int64_t{1} << 60)
    refuse_option("limits.max_payload_bytes", fmt::format("{}", options.limits.max_payload_bytes),
                  "0 or more bytes");
}

}  // namespace trireme::net
