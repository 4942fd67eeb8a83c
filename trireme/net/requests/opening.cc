#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <trireme/base/host_name.h>
#include <trireme/base/process_id.h>
#include <trireme/base/units.h>
#include <trireme/net/descriptor_socket.h>
#include <trireme/net/dial.h>
#include <trireme/net/framing.h>
#include <trireme/net/requests/opening.h>
#include <trireme/net/sockets.h>
#include <unistd.h>
#include <asio/co_spawn.hpp>
#include <asio/read.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>
#include <limits>

namespace trireme::net {
namespace {

using asio::ip::tcp;

constexpr int64_t kMostOpeningBytes = 16 << 10;

// Sends and receives signed messages, as control connections do.
struct OpeningWire {
  tcp::socket& socket;
  const SessionKeys& keys;
  uint64_t sent = 0, received = 0;

  asio::awaitable<void> send(const Json& message) {
    std::vector<uint8_t> frame = encode_frame(message, kMostOpeningBytes);
    const FrameTag tag = tag_frame(keys.sending, sent++, {frame});
    frame.insert(frame.end(), tag.begin(), tag.end());
    co_await asio::async_write(socket, asio::buffer(frame), asio::use_awaitable);
  }
  asio::awaitable<void> receive(Json& message) {
    LengthPrefix prefix;
    co_await asio::async_read(socket, asio::buffer(prefix), asio::use_awaitable);
    std::vector<uint8_t> body(decode_length(prefix, kMostOpeningBytes));
    co_await asio::async_read(socket, asio::buffer(body), asio::use_awaitable);
    FrameTag tag;
    co_await asio::async_read(socket, asio::buffer(tag), asio::use_awaitable);
    const FrameTag expected = tag_frame(keys.receiving, received++, {prefix, body});
    if (!same(tag.data(), expected.data(), tag.size()))
      throw Error(ErrorCode::corrupt, "net", "a message that its sender has not signed");
    message = decode_message(body);
  }
};

Json own_facts(const ChannelOptions& options) {
  return {{"name", fmt::format("pid {} on {}", ::getpid(), own_host_name())},
          {"path", std::string(to_string(options.path))},
          {"place", ProcessId::of_this_process().place},
          {"silence_ms", options.silence.count()},
          {"max_header_bytes", options.limits.max_header_bytes},
          {"max_payload_bytes", options.limits.max_payload_bytes}};
}

PeerFacts facts_in(const Json& message, const std::string& address) {
  const auto number = [&](const char* name, int64_t least, int64_t most) {
    const int64_t value = message.at(name).get<int64_t>();
    if (value < least || value > most)
      throw Error(ErrorCode::corrupt, "net", fmt::format("{} has {} {}", address, name, value),
                  "the same version of Trireme on both sides");
    return value;
  };
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const Milliseconds longest = kLongestWait;
  try {
    return {.name = fmt::format("{} ({})", address, message.at("name").get<std::string>()),
            .limits = {.max_header_bytes = number("max_header_bytes", 64, int64_t{1} << 30),
                       .max_payload_bytes = number("max_payload_bytes", 0, int64_t{1} << 60)},
            .silence = std::min(longest, Milliseconds(number("silence_ms", 30, kMost)))};
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::corrupt, "net",
                fmt::format("an opening message of {}: {}", address, error.what()),
                "the same version of Trireme on both sides");
  }
}

// Takes the descriptor out of Asio's hands.
Descriptor released(tcp::socket& socket, Milliseconds silence) {
  tune(socket, silence);
  // A server whose threads are busy reads nothing. Its host takes no bytes then, though it lives:
  // the signs of life tell who is lost.
  const int never = 0;
  (void)::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &never, sizeof never);
  Descriptor descriptor(socket.release());
  ::fcntl(descriptor.get(), F_SETFL, ::fcntl(descriptor.get(), F_GETFL) | O_NONBLOCK);
  return descriptor;
}

Rings receive_rings(const std::string& name, Deadline deadline) {
  DescriptorSocket socket = DescriptorSocket::connect(name, deadline);
  Descriptor memory = socket.receive_descriptor(deadline);
  RingBells to_server, to_client;
  for (Descriptor* bell : {&to_server.data, &to_server.room, &to_client.data, &to_client.room})
    *bell = socket.receive_descriptor(deadline);
  return Rings::open(std::move(memory), std::move(to_server), std::move(to_client));
}

// Runs a coroutine on the calling thread until its end. Throws what it throws, or Error(timeout).
void run_to_end(asio::io_context& context, tcp::socket& socket, asio::awaitable<void> coroutine,
                const std::string& server, Deadline deadline) {
  bool returned = false;
  std::exception_ptr failure;
  asio::co_spawn(context, std::move(coroutine), [&](std::exception_ptr error) {
    returned = true;
    failure = error;
  });
  context.restart();
  context.run_until(deadline.at());
  if (!returned) {
    socket.close();
    context.restart();
    context.run();
    throw Error(ErrorCode::timeout, "net",
                fmt::format("waited {} for {} to open a request channel",
                            format_duration(deadline.allowed()), server),
                "check that the server's process runs");
  }
  if (!failure) return;
  try {
    std::rethrow_exception(failure);
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::peer_lost, "net",
                fmt::format("{} closed the connection while a request channel was opened: {}",
                            server, error.code().message()));
  }
}

[[noreturn]] void no_path(const std::string& server, const std::string& reason) {
  throw Error(ErrorCode::unsupported, "net",
              fmt::format("no request channel to {}: {}", server, reason),
              "ChannelOptions::path automatic on both sides");
}

asio::awaitable<void> exchange_facts(OpeningWire& wire, const Json& sent, Json& answer) {
  co_await wire.send(sent);
  co_await wire.receive(answer);
}

// The server's part of the choice: why the path that the client wants cannot be had, or whether
// shared memory is offered.
std::string refusal_of_path(RequestPath ours, RequestPath theirs, bool one_host) {
  if (ours != RequestPath::automatic && theirs != RequestPath::automatic && ours != theirs)
    return fmt::format("the server's path is {}, the client's is {}", to_string(ours),
                       to_string(theirs));
  if ((ours == RequestPath::shm || theirs == RequestPath::shm) && !one_host)
    return "path shm, but client and server run on different hosts or in different containers";
  return {};
}

// Hands the memory over to the client that connects, unless the client speaks on the channel
// before it has come: then it does not want the memory any more.
asio::awaitable<void> hand_over(tcp::socket& socket, DescriptorListener& listener,
                                const Rings::Descriptors& descriptors, Deadline deadline) {
  asio::steady_timer pause(socket.get_executor());
  while (!deadline.expired() && socket.available() == 0) {
    if (auto taker = listener.accept_now()) {
      const Deadline soon = Deadline::after(Milliseconds(100));
      taker->send_descriptor(descriptors.memory, soon);
      for (const int bell : descriptors.bells) taker->send_descriptor(bell, soon);
      co_return;
    }
    pause.expires_after(Milliseconds(1));
    co_await pause.async_wait(asio::use_awaitable);
  }
}

}  // namespace

std::unique_ptr<Channel> open_as_client(const Endpoint& server, const std::string& token,
                                        const ChannelOptions& options, Deadline deadline) {
  check_channel_options(options);
  asio::io_context context{1};
  Dialled dialled = dial(context, server, token,
                         {.purpose = Purpose::requests,
                          .subject = subject_of(options.service),
                          .handshake_timeout = kOpeningTime,
                          .callee = "the server of requests"},
                         deadline);
  const std::string address = server.describe();
  const Deadline soon = Deadline::after(std::min(deadline.remaining(), kOpeningTime));
  OpeningWire wire{dialled.socket, dialled.keys};
  const Json ours = own_facts(options);
  Json answer;
  run_to_end(context, dialled.socket, exchange_facts(wire, ours, answer), address, soon);
  if (answer.contains("refusal")) no_path(address, answer["refusal"].get<std::string>());
  PeerFacts facts = facts_in(answer, address);

  std::optional<Rings> rings;
  if (answer.contains("memory")) {
    try {
      rings = receive_rings(answer["memory"].get<std::string>(), soon);
    } catch (const Error& error) {
      // Neither end that asks for shared memory only is content with TCP.
      if (options.path == RequestPath::shm || answer.value("path", "") == "shm") throw;
    }
  }
  const Json use = {{"path", rings ? "shm" : "tcp"}};
  run_to_end(context, dialled.socket, wire.send(use), address, soon);
  const Milliseconds silence = options.silence;
  return std::make_unique<Channel>(released(dialled.socket, silence), Stream::Side::client,
                                   std::move(rings), options, std::move(facts));
}

asio::awaitable<std::unique_ptr<Channel>> open_as_server(Doorkeeper::Guest& guest,
                                                         const ChannelOptions& options,
                                                         const std::string& refusal) {
  const Deadline deadline = Deadline::after(kOpeningTime);
  OpeningWire wire{guest.socket, guest.keys};
  Json theirs, answer = own_facts(options), use;
  co_await wire.receive(theirs);
  PeerFacts facts = facts_in(theirs, guest.peer);
  const RequestPath wanted = request_path_from_string(theirs.at("path").get<std::string>());
  const bool one_host = theirs.at("place") == answer["place"];
  std::string reason = refusal;
  if (reason.empty()) reason = refusal_of_path(options.path, wanted, one_host);
  std::optional<Rings> rings;
  std::optional<DescriptorListener> listener;
  Rings::Descriptors descriptors{};
  if (reason.empty() && one_host && options.path != RequestPath::tcp &&
      wanted != RequestPath::tcp) {
    try {
      rings = Rings::create(static_cast<size_t>(options.ring_bytes), descriptors);
      listener.emplace();
      answer["memory"] = listener->name();
    } catch (const Error& error) {
      rings.reset();
      if (options.path == RequestPath::shm || wanted == RequestPath::shm) reason = error.what();
    }
  }
  if (!reason.empty()) {
    answer["refusal"] = reason;
    co_await wire.send(answer);
    co_return nullptr;
  }
  co_await wire.send(answer);
  if (listener) co_await hand_over(guest.socket, *listener, descriptors, deadline);
  co_await wire.receive(use);
  if (use.at("path") != "shm") {
    if (options.path == RequestPath::shm)
      throw Error(ErrorCode::unsupported, "net", "the client did not open the shared memory",
                  "ChannelOptions::path automatic on both sides");
    rings.reset();
  }
  if (rings) rings->memory.close_descriptor();
  co_return std::make_unique<Channel>(released(guest.socket, options.silence),
                                      Stream::Side::server, std::move(rings), options,
                                      std::move(facts));
}

}  // namespace trireme::net
