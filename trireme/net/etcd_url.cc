#include <trireme/net/etcd_url.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <cctype>

namespace trireme::net {
namespace {

constexpr std::string_view kScheme = "etcd://";
constexpr size_t kLongestName = 128;

bool may_stand_in_a_name(unsigned char c) {
  return std::isalnum(c) || c == '.' || c == '_' || c == '-';
}

}  // namespace

std::string EtcdUrl::describe() const {
  std::vector<std::string> places;
  for (const Endpoint& server : servers) places.push_back(server.describe());
  return fmt::format("{}{}/{}", kScheme, fmt::join(places, ","), job);
}

bool is_etcd_url(const std::string& text) { return text.starts_with(kScheme); }

EtcdUrl parse_etcd_url(const std::string& text) {
  const auto wrong = [&](const std::string& why) {
    return Error(
        ErrorCode::invalid_argument, "net",
        fmt::format("'{}' does not say where a job is in etcd: {}", text, why),
        "etcd://HOST:PORT[,HOST:PORT...]/JOBNAME, such as etcd://10.0.0.5:2379/my-training");
  };
  if (!is_etcd_url(text)) throw wrong("it does not begin with etcd://");
  const std::string rest = text.substr(kScheme.size());
  const size_t slash = rest.find('/');
  if (slash == std::string::npos) throw wrong("it names no job");
  EtcdUrl url;
  url.job = rest.substr(slash + 1);
  if (url.job.empty()) throw wrong("it names no job");
  if (url.job.size() > kLongestName)
    throw wrong(fmt::format("the job's name has {} characters, more than {}", url.job.size(),
                            kLongestName));
  if (!std::ranges::all_of(url.job, may_stand_in_a_name))
    throw wrong(fmt::format(
        "the job's name '{}' has other characters than letters, digits, '.', '_' and '-'",
        url.job));
  for (size_t from = 0; from <= slash;) {
    const size_t comma = std::min(rest.find(',', from), slash);
    try {
      url.servers.push_back(parse_endpoint(rest.substr(from, comma - from)));
    } catch (const Error&) {
      throw wrong(fmt::format("'{}' is not HOST:PORT", rest.substr(from, comma - from)));
    }
    if (url.servers.back().port == 0) throw wrong("no server listens on port 0");
    from = comma + 1;
  }
  return url;
}

}  // namespace trireme::net
