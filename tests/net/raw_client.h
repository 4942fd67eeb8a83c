// A plain TCP client with deadlines. It talks to a server as a stranger would.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/net/message.h>
#include <array>
#include <asio/buffer.hpp>
#include <asio/connect.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <string>

namespace trireme::net {

class RawClient {
 public:
  explicit RawClient(const Endpoint& server, const std::string& from = "") : socket_(context_) {
    if (!from.empty()) {
      socket_.open(asio::ip::tcp::v4());
      socket_.bind({asio::ip::make_address(from), 0});
    }
    socket_.connect(
        {asio::ip::make_address(server.host), static_cast<asio::ip::port_type>(server.port)});
  }
  void write(std::string_view bytes) {
    std::error_code ignored;  // The server may have closed already.
    asio::write(socket_, asio::buffer(bytes), ignored);
  }
  // Returns fewer bytes if the server closes first, or is silent for five seconds.
  std::string read(size_t count) {
    std::string bytes(count, '\0');
    size_t got = 0;
    asio::async_read(socket_, asio::buffer(bytes),
                     [&](std::error_code, size_t length) { got = length; });
    context_.restart();
    if (context_.run_for(std::chrono::seconds(5)) == 0) socket_.close();
    context_.run();
    bytes.resize(got);
    return bytes;
  }
  bool closed_by_server() {
    if (closed_within(Milliseconds(5000))) return true;
    socket_.close();
    context_.restart();
    context_.run();
    return false;
  }
  // Whether the server closes within this time. Bytes that arrive are dropped.
  bool closed_within(Milliseconds time) {
    const Deadline deadline = Deadline::after(time);
    std::array<char, 4096> bytes;
    std::error_code ended;
    while (!ended) {
      bool done = false;
      socket_.async_read_some(asio::buffer(bytes), [&](std::error_code error, size_t) {
        ended = error;
        done = true;
      });
      context_.restart();
      while (!done && !deadline.expired()) context_.run_one_for(deadline.remaining());
      if (done) continue;
      socket_.cancel();
      context_.restart();
      while (!done) context_.run_one();
      return false;
    }
    return true;
  }
  asio::ip::tcp::endpoint remote() const { return socket_.remote_endpoint(); }
  std::string local() const {
    const auto here = socket_.local_endpoint();
    return Endpoint{here.address().to_string(), here.port()}.describe();
  }

 private:
  asio::io_context context_;
  asio::ip::tcp::socket socket_;
};

}  // namespace trireme::net
