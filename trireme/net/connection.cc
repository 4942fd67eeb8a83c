#include <trireme/net/connection.h>

#include <trireme/base/error.h>
#include <trireme/net/framing.h>
#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/read.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>

namespace trireme::net {
namespace {

constexpr std::chrono::seconds kLinger{2};
constexpr const char* kClosed = "connection closed";
constexpr const char* kReset = "connection reset";

std::string describe(const std::error_code& error) {
  if (error == asio::error::eof) return kClosed;
  if (error == asio::error::connection_reset) return kReset;
  if (error == asio::error::timed_out) return "silent: nothing was acknowledged (TCP time-out)";
  return error.message();
}

}  // namespace

bool ended_by_peer(const std::string& reason) { return reason == kClosed || reason == kReset; }

Connection::Connection(asio::ip::tcp::socket socket, const SessionKeys& keys,
                       int64_t max_message_bytes)
    : socket_(std::move(socket)),
      linger_(socket_.get_executor()),
      keys_(keys),
      max_message_bytes_(max_message_bytes) {}

asio::awaitable<Connection::End> Connection::run(std::function<void(Json)> received) {
  const auto self = shared_from_this();
  LengthPrefix prefix;
  std::vector<uint8_t> body;
  FrameTag tag;
  uint64_t count = 0;
  try {
    for (;;) {
      co_await asio::async_read(socket_, asio::buffer(prefix), asio::use_awaitable);
      body.resize(decode_length(prefix, max_message_bytes_));
      co_await asio::async_read(socket_, asio::buffer(body), asio::use_awaitable);
      co_await asio::async_read(socket_, asio::buffer(tag), asio::use_awaitable);
      if (const FrameTag expected = tag_frame(keys_.receiving, count++, {prefix, body});
          !same(tag.data(), expected.data(), tag.size()))
        throw Error(ErrorCode::corrupt, "net", "a message that its sender has not signed");
      Json message = decode_message(body);
      if (!finishing_) received(std::move(message));
    }
  } catch (const std::system_error& error) {
    end({describe(error.code())});
  } catch (const std::exception& error) {
    end({error.what(), true});
  }
  co_return *end_;
}

void Connection::send(std::vector<uint8_t> frame) {
  if (end_ || finishing_) return;
  const FrameTag tag = tag_frame(keys_.sending, sent_++, {frame});
  frame.insert(frame.end(), tag.begin(), tag.end());
  queued_bytes_ += frame.size();
  if (queued_bytes_ > 2 * static_cast<size_t>(max_message_bytes_))
    return end({"it does not read its messages"});
  queue_.push_back(std::move(frame));
  if (queue_.size() == 1) write_next();
}

void Connection::write_next() {
  asio::async_write(socket_, asio::buffer(queue_.front()),
                    [self = shared_from_this()](std::error_code error, size_t) {
                      if (error) return self->end({describe(error)});
                      self->queued_bytes_ -= self->queue_.front().size();
                      self->queue_.pop_front();
                      if (!self->queue_.empty()) return self->write_next();
                      if (self->finishing_) self->say_last();
                    });
}

void Connection::finish() {
  if (end_ || finishing_) return;
  finishing_ = true;
  linger_.expires_after(kLinger);
  linger_.async_wait([self = shared_from_this()](std::error_code cancelled) {
    if (!cancelled) self->end({"closed here"});
  });
  if (queue_.empty()) say_last();
}

// To close at once could reset the connection and destroy data that the peer has not read yet.
void Connection::say_last() {
  std::error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

void Connection::end(End end) {
  if (end_) return;
  end_ = std::move(end);
  std::error_code ignored;
  linger_.cancel();
  socket_.close(ignored);
}

}  // namespace trireme::net
