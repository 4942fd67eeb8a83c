// Writes the workers' output to this process's output, as whole lines with the worker's number.
#pragma once
#include <poll.h>
#include <trireme/launch/output.h>
#include <functional>
#include <list>
#include <string>
#include <vector>

namespace trireme::launch {

class OutputRelay {
 public:
  // Called first for each line of a worker's standard output. Returns true to keep the line from
  // being printed.
  using Swallow = std::function<bool(int worker, const std::string& line)>;

  OutputRelay(bool prefix_lines, Swallow swallow, int output, int error_output);
  ~OutputRelay();
  OutputRelay(const OutputRelay&) = delete;
  OutputRelay& operator=(const OutputRelay&) = delete;

  // Takes ownership of the non-blocking read ends. `label` stands in front of
  // each line ("[ps 0] "); empty: the worker's number.
  void add_worker(int worker, int output, int error_output, const std::string& label = {});
  // Adds the descriptors to wait for. While the reader of this process's output is far behind, the
  // workers' streams are left out: the workers have to wait.
  void add_to_poll(std::vector<pollfd>& polled) const;
  // Reads the available output and writes the lines for which there is room. Never blocks.
  void run_once();

  bool has_unwritten() const { return output_.has_pending() || error_output_.has_pending(); }
  bool has_open_stream() const { return !streams_.empty(); }

 private:
  struct Stream {
    int worker;
    std::string label;
    int fd;
    bool is_error;
    LineSplitter lines{};
  };
  bool is_held_up() const { return output_.is_full() || error_output_.is_full(); }
  void hand_on(const Stream& stream, const std::string& line);
  bool read_once(Stream& stream);

  bool prefix_lines_;
  Swallow swallow_;
  LineWriter output_;
  LineWriter error_output_;
  std::list<Stream> streams_;  // The open streams.
};

}  // namespace trireme::launch
