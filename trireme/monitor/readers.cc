#include <trireme/monitor/readers.h>

#include <unistd.h>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace trireme::monitor {

std::unique_ptr<Sink> readers_of_rank_0(const RunFiles& files, const ReaderOptions& options) {
  return make_on_demand([files, options] {
    std::vector<std::unique_ptr<Sink>> sinks;
    const char* const drawn_by = std::getenv("TRIREME_PROGRESS");
    const bool launcher_draws = drawn_by != nullptr && std::string_view(drawn_by) == "launcher";
    std::FILE* const out = options.json ? stderr : stdout;
    if (options.progress && !launcher_draws)
      sinks.push_back(make_progress(out, isatty(fileno(out)) != 0));
    if (!files.log.empty()) sinks.push_back(make_json_lines(files.log));
    if (!files.events.empty()) sinks.push_back(make_tensorboard(files.events));
    return sinks;
  });
}

}  // namespace trireme::monitor
