#include <fmt/format.h>
#include <trireme/launch/protocol.h>

namespace trireme::launch {
namespace {

ErrorCode error_code_from(const std::string& name) {
  for (const ErrorCode code : {ErrorCode::invalid_argument, ErrorCode::not_found, ErrorCode::unsupported, ErrorCode::timeout,
                               ErrorCode::peer_lost, ErrorCode::aborted, ErrorCode::corrupt, ErrorCode::io}) {
    if (to_string(code) == name) return code;
  }
  return ErrorCode::internal;
}

Json with_failure(Json message, const Failure& failure) {
  message["error"] = std::string(to_string(failure.code));
  message["what"] = failure.what;
  message["remedy"] = failure.remedy;
  return message;
}

std::string shown(const Facts& facts, const std::string& key) {
  const auto found = facts.find(key);
  return found == facts.end() ? "not set" : "'" + found->second + "'";
}

}  // namespace

Error Failure::error() const { return Error(code, "launch", what, remedy); }

Json reply_to(int64_t request) { return {{"op", "reply"}, {"id", request}}; }
Json reply_to(int64_t request, const Failure& failure) { return with_failure(reply_to(request), failure); }
Json refusal(const Failure& failure) { return with_failure({{"op", "refused"}}, failure); }

std::optional<Failure> failure_in(const Json& message) {
  if (!message.contains("error")) return std::nullopt;
  return Failure{error_code_from(message.at("error").get<std::string>()), message.at("what").get<std::string>(),
                 message.at("remedy").get<std::string>()};
}

Json lost_message(const LostWorker& lost) {
  return {{"op", "lost"},
          {"worker", lost.worker},
          {"host", lost.host},
          {"pid", lost.pid},
          {"phase", std::string(to_string(lost.last.phase))},
          {"step", lost.last.step},
          {"reason", lost.reason}};
}

LostWorker lost_from(const Json& message) {
  return {message.at("worker").get<int>(), message.at("host").get<std::string>(), message.at("pid").get<int>(),
          PhaseAt{phase_from_string(message.at("phase").get<std::string>()), message.at("step").get<int64_t>()},
          message.at("reason").get<std::string>()};
}

Json bytes(const std::string& value) { return Json::binary({value.begin(), value.end()}); }

std::string bytes_from(const Json& value) {
  const auto& binary = value.get_binary();
  return {binary.begin(), binary.end()};
}

std::string worker_name(int worker, const std::string& host) {
  return host.empty() ? fmt::format("worker {}", worker) : fmt::format("worker {} (host {})", worker, host);
}

std::string enumerate(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return text;
}

std::optional<std::string> first_difference(const std::string& one, const Facts& a, const std::string& other, const Facts& b) {
  std::optional<std::string> first;
  for (const Facts* facts : {&a, &b}) {
    for (const auto& [key, value] : *facts) {
      if (shown(a, key) != shown(b, key) && (!first || key < *first)) first = key;
    }
  }
  if (!first) return std::nullopt;
  return fmt::format("{} is {} on {} and {} on {}", *first, shown(a, *first), one, shown(b, *first), other);
}

}  // namespace trireme::launch
