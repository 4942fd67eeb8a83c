#include <trireme/checkpoint/step_name.h>

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <functional>
#include <string_view>

namespace trireme::checkpoint {

std::string name_of_step(int64_t step) { return fmt::format("step-{:09}", step); }

std::optional<int64_t> step_of_name(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return {};
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || stop != end || name != name_of_step(step)) return {};
  return step;
}

std::vector<int64_t> steps_in(FileSystem& files, const std::filesystem::path& folder) {
  std::vector<int64_t> steps;
  for (const auto& entry : files.list(folder))
    if (const auto step = step_of_name(entry.name); step && entry.is_folder)
      steps.push_back(*step);
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

}  // namespace trireme::checkpoint
