// Requests over plain HTTP: a client posts JSON and reads the whole answer. It follows no proxies
// and no redirections.
#pragma once
#include <trireme/base/deadline.h>
#include <memory>
#include <string>

namespace trireme::net {

struct HttpReply {
  long status = 0;  // 0: there was no answer.
  std::string body;
  std::string failure;  // The reason why there was no answer.
};

// Keeps its connections from one request to the next. Only one thread at a time may use an object.
class HttpClient {
 public:
  HttpClient();
  ~HttpClient();
  HttpReply post(const std::string& url, const std::string& json, Milliseconds at_most);
  // The address of this side in the last request that was answered; empty if there was none.
  std::string local_address() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::net
