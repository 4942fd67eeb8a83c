#include <fmt/format.h>
#include <trireme/base/deadline.h>
#include <trireme/base/units.h>
#include <trireme/membership/key_value_store.h>
#include <charconv>

namespace trireme::membership {
namespace {

std::string key_of(const Json& request) { return request.at("key").get<std::string>(); }
int64_t id_of(const Json& request) { return request.at("id").get<int64_t>(); }

Json with_value(Json reply, const std::string& value) {
  reply["value"] = bytes(value);
  return reply;
}

}  // namespace

Membership::Messages KeyValueStore::handle(int worker, const Json& request, Time now) {
  const std::string op = request.at("op").get<std::string>();
  Json reply = reply_to(id_of(request));
  Messages messages;
  if (op == "set") {
    put(worker, key_of(request), bytes_from(request.at("value")), messages);
  } else if (op == "get") {
    reply = get(worker, request, now);
  } else if (op == "find") {
    if (const auto found = values_.find(key_of(request)); found != values_.end())
      reply = with_value(reply, found->second);
  } else if (op == "add") {
    reply = add(worker, request, messages);
  } else if (op == "compare_set") {
    reply = compare_set(worker, request, messages);
  } else if (op == "erase") {
    reply["erased"] = values_.erase(key_of(request)) > 0;
  } else if (op == "count") {
    reply["count"] = values_.size();
  } else {
    throw Error(ErrorCode::corrupt, "membership",
                fmt::format("the protocol has no request '{}'", op));
  }
  if (!reply.is_null()) messages.push_back({worker, std::move(reply)});
  return messages;
}

// Returns null if the request has to wait for its answer.
Json KeyValueStore::get(int worker, const Json& request, Time now) {
  const std::string key = key_of(request);
  const auto found = values_.find(key);
  if (found != values_.end()) return with_value(reply_to(id_of(request)), found->second);
  const auto patience = saturated(Milliseconds(request.at("timeout_ms").get<int64_t>()));
  waits_.push_back({worker, id_of(request), key, now, now + patience});
  return nullptr;
}

Json KeyValueStore::add(int worker, const Json& request, Messages& woken) {
  const std::string key = key_of(request);
  int64_t sum = 0;
  if (const auto found = values_.find(key); found != values_.end()) {
    const std::string& text = found->second;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), sum);
    if (status != std::errc() || end != text.data() + text.size())
      return reply_to(id_of(request), {ErrorCode::invalid_argument,
                                       fmt::format("key '{}' does not hold a whole number", key),
                                       "add only to keys that were made by add"});
  }
  sum += request.at("amount").get<int64_t>();
  put(worker, key, std::to_string(sum), woken);
  Json reply = reply_to(id_of(request));
  reply["sum"] = sum;
  return reply;
}

Json KeyValueStore::compare_set(int worker, const Json& request, Messages& woken) {
  const std::string key = key_of(request);
  const std::string expected = bytes_from(request.at("expected"));
  const auto found = values_.find(key);
  if (found == values_.end() && !expected.empty())
    return with_value(reply_to(id_of(request)), expected);
  if (found != values_.end() && found->second != expected)
    return with_value(reply_to(id_of(request)), found->second);
  const std::string desired = bytes_from(request.at("desired"));
  put(worker, key, desired, woken);
  return with_value(reply_to(id_of(request)), desired);
}

void KeyValueStore::put(int worker, const std::string& key, std::string value, Messages& woken) {
  std::erase_if(waits_, [&](const Wait& wait) {
    if (wait.key != key) return false;
    woken.push_back({wait.worker, with_value(reply_to(wait.request), value)});
    return true;
  });
  values_[key] = std::move(value);
  owners_[key] = worker;
}

void KeyValueStore::forget_keys_of(int worker) {
  std::erase_if(values_, [&](const auto& each) { return owners_[each.first] == worker; });
  std::erase_if(waits_, [&](const Wait& wait) { return wait.worker == worker; });
}

void KeyValueStore::begin_generation() {
  std::erase_if(values_, [&](const auto& each) { return owners_[each.first] < kFirstSideTask; });
  std::erase_if(waits_, [](const Wait& wait) { return wait.worker < kFirstSideTask; });
}

Membership::Messages KeyValueStore::tick(Time now) {
  Messages messages;
  std::erase_if(waits_, [&](const Wait& wait) {
    if (now < wait.deadline) return false;
    const auto waited =
        std::chrono::duration_cast<std::chrono::milliseconds>(wait.deadline - wait.since);
    messages.push_back(
        {wait.worker,
         reply_to(wait.request, {ErrorCode::timeout,
                                 fmt::format("no worker set key '{}' within {}", wait.key,
                                             format_duration(waited)),
                                 "check what the other workers do, or allow more time"})});
    return true;
  });
  return messages;
}

Membership::Messages KeyValueStore::fail_waits(
    const std::function<std::optional<Failure>(int)>& why) {
  Messages messages;
  std::erase_if(waits_, [&](const Wait& wait) {
    const auto failure = why(wait.worker);
    if (failure) messages.push_back({wait.worker, reply_to(wait.request, *failure)});
    return failure.has_value();
  });
  return messages;
}

}  // namespace trireme::membership
