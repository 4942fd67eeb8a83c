#include <trireme/launch/relay.h>

#include <fmt/format.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <utility>

namespace trireme::launch {

OutputRelay::OutputRelay(bool prefix_lines, Swallow swallow, int output, int error_output)
    : prefix_lines_(prefix_lines),
      swallow_(std::move(swallow)),
      output_(output),
      error_output_(error_output) {}

OutputRelay::~OutputRelay() {
  for (const Stream& stream : streams_) ::close(stream.fd);
}

void OutputRelay::add_worker(int worker, int output, int error_output, const std::string& name) {
  const std::string label = name.empty() ? std::to_string(worker) : name;
  streams_.push_back({.worker = worker, .label = label, .fd = output, .is_error = false});
  streams_.push_back({.worker = worker, .label = label, .fd = error_output, .is_error = true});
}

void OutputRelay::add_to_poll(std::vector<pollfd>& polled) const {
  if (!is_held_up()) {
    for (const Stream& stream : streams_) polled.push_back({stream.fd, POLLIN, 0});
  }
  for (const LineWriter* writer : {&output_, &error_output_}) {
    if (writer->has_pending()) polled.push_back({writer->descriptor(), POLLOUT, 0});
  }
}

void OutputRelay::run_once() {
  output_.write_pending();
  error_output_.write_pending();
  for (auto stream = streams_.begin(); stream != streams_.end() && !is_held_up();) {
    if (read_once(*stream)) {
      ++stream;
      continue;
    }
    ::close(stream->fd);
    stream = streams_.erase(stream);
  }
}

// Reads one buffer in each turn, so that a worker with much output does not delay the others.
// Returns false once the stream has ended.
bool OutputRelay::read_once(Stream& stream) {
  std::array<char, 64 << 10> bytes;
  const ssize_t got = ::read(stream.fd, bytes.data(), bytes.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  const auto on_line = [&](const std::string& line) { hand_on(stream, line); };
  if (got > 0) {
    stream.lines.feed({bytes.data(), static_cast<size_t>(got)}, on_line);
    return true;
  }
  stream.lines.finish(on_line);
  return false;
}

void OutputRelay::hand_on(const Stream& stream, const std::string& line) {
  if (!stream.is_error && swallow_ && swallow_(stream.worker, line)) return;
  const std::string prefix = prefix_lines_ ? fmt::format("[{}] ", stream.label) : std::string();
  (stream.is_error ? error_output_ : output_).write_line(prefix, line);
}

}  // namespace trireme::launch
