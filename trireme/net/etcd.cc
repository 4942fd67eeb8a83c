#include <trireme/net/etcd.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/net/base64.h>
#include <charconv>

namespace trireme::net {
namespace {

constexpr Milliseconds kEachServer{1000};
constexpr int kNotFound = 5;  // The code of gRPC.

// etcd leaves empty and zero values out of its JSON.
std::string text(const Json& object, const char* name) {
  if (!object.is_object() || !object.contains(name)) return {};
  if (object[name].is_string()) return object[name].get<std::string>();
  throw Error(
      ErrorCode::io, "net",
      fmt::format("etcd's answer has {} where text was expected ({})", object[name].dump(), name));
}

// etcd writes 64-bit numbers as text.
int64_t number(const Json& object, const char* name) {
  const std::string digits = text(object, name);
  int64_t value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (!digits.empty() && (status != std::errc() || end != digits.data() + digits.size()))
    throw Error(
        ErrorCode::io, "net",
        fmt::format("etcd's answer has '{}' where a number was expected ({})", digits, name));
  return value;
}

bool is_answer(const Json& json) {
  return json.is_object() && (json.contains("header") || json.contains("result"));
}

}  // namespace

// Returns an empty value if the object of the request does not exist.
std::optional<Json> Etcd::call(const std::string& path, const Json& request, Deadline deadline) {
  std::string failures;
  for (size_t tried = 0; tried < servers_.size(); ++tried) {
    const size_t asked = (answers_ + tried) % servers_.size();
    const std::string place = servers_[asked].describe();
    const HttpReply reply = http_.post("http://" + place + path, request.dump(),
                                       std::min(kEachServer, deadline.remaining()));
    const Json json = Json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
    if (reply.status == 200 && is_answer(json)) {
      answers_ = asked;
      return json;
    }
    if (json.is_object() && json.contains("code") && json["code"] == kNotFound)
      return std::nullopt;
    std::string what = reply.failure;
    if (what.empty() && json.is_object() && json.contains("error"))
      what = text(json, "error");
    else if (what.empty())
      what = fmt::format("it answers (HTTP {}), but not as etcd does", reply.status);
    failures += fmt::format("{}{}: {}", failures.empty() ? "" : "; ", place, what);
  }
  // The callers, which know the purpose, add a remedy.
  throw Error(ErrorCode::not_found, "net", fmt::format("etcd does not answer ({})", failures));
}

std::optional<Etcd::Entry> Etcd::get(const std::string& key, Deadline deadline) {
  const auto reply = call("/v3/kv/range", {{"key", to_base64(key)}}, deadline);
  if (!reply || !reply->contains("kvs") || !(*reply)["kvs"].is_array() || (*reply)["kvs"].empty())
    return std::nullopt;
  const Json& found = (*reply)["kvs"].front();
  return Entry{from_base64(text(found, "value")), number(found, "mod_revision"),
               number(found, "lease")};
}

bool Etcd::replace(const std::string& key, const std::string& value, int64_t lease,
                   int64_t revision, Deadline deadline) {
  const std::string name = to_base64(key);
  const Json unchanged{{"key", name},
                       {"target", "MOD"},
                       {"result", "EQUAL"},
                       {"mod_revision", std::to_string(revision)}};
  const Json put{{"key", name}, {"value", to_base64(value)}, {"lease", std::to_string(lease)}};
  const Json request{{"compare", Json::array({unchanged})},
                     {"success", Json::array({Json{{"request_put", put}}})}};
  const auto reply = call("/v3/kv/txn", request, deadline);
  return reply && reply->contains("succeeded") && (*reply)["succeeded"] == true;
}

int64_t Etcd::grant(std::chrono::seconds time, Deadline deadline) {
  const auto reply = call("/v3/lease/grant", {{"TTL", std::to_string(time.count())}}, deadline);
  const int64_t lease = reply ? number(*reply, "ID") : 0;
  if (lease == 0)
    throw Error(ErrorCode::io, "net", "etcd's answer to the request for a lease does not name it");
  return lease;
}

bool Etcd::keep_alive(int64_t lease, Deadline deadline) {
  const auto reply = call("/v3/lease/keepalive", {{"ID", std::to_string(lease)}}, deadline);
  return reply && reply->contains("result") && number((*reply)["result"], "TTL") > 0;
}

void Etcd::revoke(int64_t lease, Deadline deadline) {
  call("/v3/lease/revoke", {{"ID", std::to_string(lease)}}, deadline);
}

}  // namespace trireme::net
