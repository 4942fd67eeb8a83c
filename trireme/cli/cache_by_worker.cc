#include <trireme/cli/cache_by_worker.h>

#include <fmt/format.h>
#include <trireme/base/deadline.h>
#include <trireme/base/descriptor.h>
#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <trireme/cli/command_line.h>
#include <trireme/launch/process.h>
#include <trireme/run/cache_choice.h>
#include <trireme/run/places.h>
#include <unistd.h>
#include <array>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace trireme::cli {
namespace {

constexpr Milliseconds kLook{50};

launch::ChildProcess start_choice(const Config& config) {
  std::vector<std::string> words = torch_command("trireme-worker", config.library);
  words.emplace_back("data-cache");
  for (const std::string& setting : to_settings(config))
    words.insert(words.end(), {"--set", setting});
  return {words, launch::environment_of_this_process()};
}

// Appends all that there is to read now.
void read_some(int from, std::string& text) {
  std::array<char, 4096> part{};
  for (ssize_t bytes = 0; (bytes = ::read(from, part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<size_t>(bytes));
}

Error too_late() {
  return Error(ErrorCode::timeout, "cli",
               fmt::format("data.cache is auto, and a few samples were not loaded within {} s",
                           kPatienceForChoice.count() / 1000),
               "data.cache=stages");
}

struct Output {
  launch::ProcessEnd end;
  std::string text;
};

// Waits for the end of the process. What it has written to standard error goes on to that of this
// process. A process that it leaves may hold the pipes open, so their end says nothing.
Output output_of(launch::ChildProcess& child) {
  const Deadline deadline = Deadline::after(kPatienceForChoice);
  const Descriptor out(child.release_output()), errors(child.release_error_output());
  std::string text, complaints;
  std::optional<launch::ProcessEnd> end;
  for (;;) {
    end = child.poll_end();  // Before the reading, so that all that it wrote is in the pipes.
    read_some(out.get(), text);
    read_some(errors.get(), complaints);
    if (end || deadline.expired()) break;
    std::this_thread::sleep_for(kLook);
  }
  fmt::print(stderr, "{}", complaints);
  if (!end) throw too_late();
  return {*end, std::move(text)};
}

// The last line. Functions of the user's may have written others, which go on to standard error.
CacheChoice choice_in(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  const size_t begin = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  fmt::print(stderr, "{}", text.substr(0, begin));
  const Json json = Json::parse(text.substr(begin), nullptr, /*allow_exceptions=*/false);
  if (auto choice = cache_choice_from(json)) return *std::move(choice);
  throw Error(
      ErrorCode::invalid_argument, "cli",
      fmt::format("data.cache is auto, and the process that measured it has written \"{}\" "
                  "in place of its choice",
                  text.substr(begin, 200)),
      "functions of stages that write no lines without an end, or data.cache=stages");
}

}  // namespace

int place_cache_by_worker(Config& config, bool quiet) {
  if (!wants_cache_choice(config)) return kExitOk;
  launch::ChildProcess child = start_choice(config);
  const auto [end, text] = output_of(child);
  if (end.by_signal)
    throw Error(ErrorCode::peer_lost, "cli",
                fmt::format("data.cache is auto, and the process that measured it was lost: {}",
                            end.describe()),
                "data.cache=stages");
  if (end.code != kExitOk) return end.code;
  const CacheChoice choice = choice_in(text);
  apply(choice, config);
  if (!quiet) fmt::print(stderr, "{}\n", choice.line);
  return kExitOk;
}

}  // namespace trireme::cli
