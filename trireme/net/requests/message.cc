#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/net/requests/message.h>

namespace trireme::net {

RequestPath request_path_from_string(std::string_view text) {
  for (const RequestPath path : {RequestPath::automatic, RequestPath::tcp, RequestPath::shm})
    if (text == to_string(path)) return path;
  throw Error(ErrorCode::invalid_argument, "net",
              fmt::format("\"{}\" is no path of a request channel", text), "auto, tcp or shm");
}

std::string_view to_string(RequestPath path) {
  switch (path) {
    case RequestPath::tcp: return "tcp";
    case RequestPath::shm: return "shm";
    case RequestPath::automatic: break;
  }
  return "auto";
}

}  // namespace trireme::net
