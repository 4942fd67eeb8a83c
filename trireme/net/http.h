// Requests over plain HTTP: JSON is posted, and the answer read whole. No proxies, no redirections.
#pragma once
#include <trireme/base/deadline.h>
#include <memory>
#include <string>

namespace trireme::net {

struct HttpReply {
  long status = 0;  // 0: there was no answer.
  std::string body;
  std::string failure;  // Why not.
};

// Keeps its connections from one request to the next. Not for several threads at once.
class HttpClient {
 public:
  HttpClient();
  ~HttpClient();
  HttpReply post(const std::string& url, const std::string& json, Milliseconds at_most);
  std::string local_address()
      const;  // This side's, in the last request that was answered; empty: none was.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::net
