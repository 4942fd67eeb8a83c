// A process that listens on a port of its own, and forwards all bytes to another server and back.
// An attacker that took a free port could do this.
#pragma once
#include <trireme/net/message.h>
#include <array>
#include <asio/connect.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/write.hpp>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace trireme::net {

class Relay {
 public:
  // `change` may modify the bytes that a client sends.
  explicit Relay(Endpoint target, const std::string& address = "127.0.0.1", int port = 0,
                 std::function<void(std::string&)> change = {})
      : target_(std::move(target)),
        change_(std::move(change)),
        acceptor_(context_,
                  {asio::ip::make_address(address), static_cast<asio::ip::port_type>(port)}) {
    accept();
    thread_ = std::thread([this] { context_.run(); });
  }
  ~Relay() {
    context_.stop();
    thread_.join();
  }
  Endpoint endpoint() const {
    const auto here = acceptor_.local_endpoint();
    return {here.address().to_string(), here.port()};
  }

 private:
  using Socket = asio::ip::tcp::socket;
  void accept() {
    acceptor_.async_accept([this](std::error_code error, Socket client) {
      if (error) return;
      auto from = std::make_shared<Socket>(std::move(client));
      auto to = std::make_shared<Socket>(context_);
      std::error_code refused;
      to->connect(
          {asio::ip::make_address(target_.host), static_cast<asio::ip::port_type>(target_.port)},
          refused);
      if (!refused) {
        pass(from, to, change_);
        pass(to, from, {});
      }
      accept();
    });
  }
  void pass(std::shared_ptr<Socket> from, std::shared_ptr<Socket> to,
            std::function<void(std::string&)> change) {
    auto buffer = std::make_shared<std::array<char, 65536>>();
    from->async_read_some(asio::buffer(*buffer),
                          [this, from, to, change, buffer](std::error_code error, size_t count) {
                            std::error_code ignored;
                            if (error) {
                              to->shutdown(Socket::shutdown_send, ignored);
                              return;
                            }
                            std::string bytes(buffer->data(), count);
                            if (change) change(bytes);
                            asio::write(*to, asio::buffer(bytes), ignored);
                            pass(from, to, change);
                          });
  }

  asio::io_context context_;
  const Endpoint target_;
  const std::function<void(std::string&)> change_;
  asio::ip::tcp::acceptor acceptor_;
  std::thread thread_;
};

}  // namespace trireme::net
