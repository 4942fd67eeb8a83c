#include <fmt/format.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/log.h>
#include <trireme/net/requests/server_connection.h>
#include <utility>

namespace trireme::net {
namespace {

// Memory for the tensors of a request whose server names none.
Placement allocate_places(const Head& head) {
  uint64_t bytes = 0;
  for (const TensorNote& note : head.tensors) bytes += note.bytes;
  const std::shared_ptr<std::byte[]> memory(new std::byte[bytes]);
  Placement placement;
  for (size_t i = 0, at = 0; i < head.tensors.size(); at += head.tensors[i++].bytes)
    placement.places.push_back({memory.get() + at, head.tensors[i].bytes});
  placement.owner = memory;
  return placement;
}

}  // namespace

void ServerConnection::place(ReceivedFrame& frame, const RequestHandler& handler) {
  if (frame.prefix.kind == FrameKind::reply || frame.prefix.kind == FrameKind::failure)
    throw Error(ErrorCode::corrupt, "net", "an answer from a client");
  frame.discarded = frame.prefix.kind != FrameKind::request;
  if (frame.discarded || frame.head.tensors.empty()) return;
  frame.placement = handler.place ? handler.place(frame.head) : allocate_places(frame.head);
  check_places([] { return "the request"; }, frame.head, frame.placement.places);
}

std::optional<ServerConnection::Arrived> ServerConnection::read(const RequestHandler& handler) {
  const auto place_frame = [&](ReceivedFrame& frame) { place(frame, handler); };
  for (;;) {
    const auto progress = channel->reader.advance(channel->stream, place_frame);
    if (progress == FrameReader::Progress::waits) return std::nullopt;
    if (progress == FrameReader::Progress::more) continue;
    ReceivedFrame frame = channel->reader.take();
    if (frame.prefix.kind == FrameKind::request) return arrived(std::move(frame));
    if (frame.prefix.kind == FrameKind::cancel) cancel(frame.prefix.id);
    if (frame.problem) std::rethrow_exception(frame.problem);
  }
}

ServerConnection::Arrived ServerConnection::arrived(ReceivedFrame frame) {
  auto state = std::make_shared<Responder::State>(shared_from_this(), frame.prefix.id);
  {
    std::lock_guard lock(mutex_);
    if (!under_way_.emplace(frame.prefix.id, state).second)
      throw Error(ErrorCode::corrupt, "net",
                  fmt::format("request {} came twice", frame.prefix.id));
  }
  if (closed_) state->cancelled = true;
  return {.request = {.head = std::move(frame.head),
                      .tensors = std::move(frame.placement.places),
                      .owner = std::move(frame.placement.owner),
                      .client = channel->peer.name},
          .state = std::move(state),
          .problem = frame.problem};
}

void ServerConnection::cancel(uint64_t request) {
  std::lock_guard lock(mutex_);
  if (const auto found = under_way_.find(request); found != under_way_.end())
    if (const auto state = found->second.lock()) state->cancelled = true;
}

bool ServerConnection::answer(uint64_t request, std::vector<std::byte> front,
                              const Message& message) {
  forget(request);
  const auto while_waiting = [this] {
    if (closed_) throw std::system_error(ECONNRESET, std::system_category());
  };
  try {
    // The wait ends when the client is lost, which Channel::tick() finds out.
    if (channel->send(std::move(front), message, Deadline::after(kLongestWait), while_waiting) ==
        FrameWriter::Outcome::sent)
      return true;
  } catch (const std::system_error&) {
    // The client has ended.
  } catch (const std::exception& error) {
    log_warning("net: closed the request channel of {}: {}", channel->peer.name, error.what());
  }
  close();
  return false;
}

void ServerConnection::end_reading() {
  reading_ = false;
  if (closed_ && begin_reading()) channel->reader.discard_rest();
}

void ServerConnection::forget(uint64_t request) {
  std::lock_guard lock(mutex_);
  under_way_.erase(request);
}

void ServerConnection::close() {
  closed_ = true;
  channel->stream.shut_down();
  if (begin_reading()) channel->reader.discard_rest();
  std::lock_guard lock(mutex_);
  for (const auto& [request, weak] : under_way_)
    if (const auto state = weak.lock()) state->cancelled = true;
}

void Responder::State::claim() {
  std::lock_guard lock(mutex_);
  if (answered_)
    throw Error(ErrorCode::internal, "net", fmt::format("request {} was answered twice", id));
  answered_ = true;
}

bool Responder::State::send(std::vector<std::byte> front, const Message& message) {
  claim();
  if (cancelled) {
    connection->forget(id);
    return false;
  }
  return connection->answer(id, std::move(front), message);
}

bool Responder::State::reply(const Message& message) {
  if (!before.empty()) {
    Message whole{std::exchange(before, {}) + message.header, message.tensors};
    return reply(whole);
  }
  check_message([this] { return fmt::format("the reply to request {}", id); }, message,
                connection->channel->peer.limits);
  return send(encode_front(FrameKind::reply, id, message), message);
}

bool Responder::State::fail(ErrorCode code, std::string_view what, std::string_view remedy) {
  return send(encode_failure(id, code, what, remedy), {});
}

bool Responder::State::fail(const std::exception& error) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  const auto [what, remedy] = parts_of(error);
  return fail(known ? known->code() : ErrorCode::internal, what, remedy);
}

void Responder::State::drop() {
  {
    std::lock_guard lock(mutex_);
    dropped_ = true;
    if (answered_ || in_handler_) return;
  }
  fail(ErrorCode::internal, "the server dropped the request without an answer", "");
}

void Responder::State::end_of_handler(const std::exception* error) {
  bool due = false;
  {
    std::lock_guard lock(mutex_);
    in_handler_ = false;
    due = !answered_ && dropped_;
  }
  if (due && error) fail(*error);
  if (!due && error)
    log_warning("net: the handler of request {} of {} failed after it answered or kept it: {}", id,
                connection->channel->peer.name, error->what());
  if (due && !error) drop();
}

Responder& Responder::operator=(Responder&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}
Responder::~Responder() {
  if (!state_) return;
  try {
    state_->drop();
  } catch (const std::exception&) {
    state_->connection->close();  // Without memory for an answer, the client must not wait for it.
  }
}
Responder::State& Responder::state() const {
  if (!state_)
    throw Error(ErrorCode::internal, "net", "a Responder was used after it was moved away",
                "the Responder to which it was moved");
  return *state_;
}
void Responder::put_before(std::string text) { state().before = std::move(text); }
bool Responder::reply(const Message& message) { return state().reply(message); }
bool Responder::fail(ErrorCode code, std::string_view what, std::string_view remedy) {
  return state().fail(code, what, remedy);
}
bool Responder::cancelled() const { return state().cancelled; }

}  // namespace trireme::net
