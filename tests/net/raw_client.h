// A plain TCP client with deadlines, for speaking to a server as a stranger would.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/net/message.h>
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
  explicit RawClient(const Endpoint& server) : socket_(context_) {
    socket_.connect(
        {asio::ip::make_address(server.host), static_cast<asio::ip::port_type>(server.port)});
  }
  void write(std::string_view bytes) {
    std::error_code ignored;  // The server may have closed already.
    asio::write(socket_, asio::buffer(bytes), ignored);
  }
  // Fewer bytes if the server closes first, or is silent for five seconds.
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
    char byte;
    bool closed = false;
    socket_.async_read_some(asio::buffer(&byte, 1), [&](std::error_code error, size_t) {
      closed = static_cast<bool>(error);
    });
    context_.restart();
    if (context_.run_for(std::chrono::seconds(5)) > 0) return closed;
    socket_.close();
    context_.run();
    return false;
  }
  std::string local() const {
    const auto here = socket_.local_endpoint();
    return Endpoint{here.address().to_string(), here.port()}.describe();
  }

 private:
  asio::io_context context_;
  asio::ip::tcp::socket socket_;
};

}  // namespace trireme::net
