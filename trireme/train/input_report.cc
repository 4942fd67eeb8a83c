#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/units.h>
#include <trireme/data/service/server_work.h>
#include <trireme/train/input_report.h>
#include <algorithm>
#include <cmath>
#include <set>

namespace trireme {
namespace {

constexpr double kWorthALine = 0.01, kWorthAdvice = 0.02, kBusy = 0.8, kWorthACache = 0.3;
// The stage of a worker that waits for a data service, and the place of the service's own stages.
constexpr const char* kInService = "service";

// The threads of all ranks that loaded, as a mean over the steps, and the seconds that they had.
struct LoadingThreads {
  double mean = 0, seconds = 0;
};

// `threads` are those that may do the work: of the ranks, or of the data service.
Json stage_json(const data::StageUse& stage, const LoadingThreads& threads) {
  const double busy = threads.seconds > 0 ? std::min(1.0, stage.seconds / threads.seconds) : 0;
  Json json = data::to_json(stage);
  json["busy_share"] = busy;
  json["threads"] = busy * threads.mean;
  return json;
}

// The part of their time in which the threads here, or those of the data service, were busy.
double busy_share_of(const Json& stages, bool in_service) {
  double busy = 0;
  for (const Json& stage : stages)
    if (stage.contains("in") == in_service) busy += stage.at("busy_share").get<double>();
  return std::min(1.0, busy);
}

// A cache that saves only a small part of the work is no advice.
Json advice_json(const data::CacheAdvice& advice, const Json& stages, int64_t memory) {
  double work = 0;
  for (const Json& stage : stages) work += stage.at("ms_per_sample").get<double>() * 1e-3;
  if (advice.seconds < kWorthACache * work) return nullptr;
  return {{"stage", advice.bytes <= memory ? "cache" : "cache(disk)"},
          {"after", advice.after},
          {"bytes", advice.bytes},
          {"ms_per_sample", advice.seconds * 1e3}};
}

// The advice about the threads; empty: none.
std::string way_by_threads(const Json& input, double busy) {
  const auto threads = input.at("threads").get<int64_t>();
  const Json& tuned = input.at("tuned");
  if (threads == 0) return "data.threads=auto";
  if (!tuned.at("threads").get<bool>()) {
    const auto ranks = std::ssize(input.at("waited_share_of_rank"));
    if (busy >= kBusy)
      return fmt::format("data.threads={}", threads / std::max<int64_t>(1, ranks) + 1);
    return tuned.at("prefetch").get<bool>()
               ? ""
               : "data.prefetch, because the threads are not always busy";
  }
  const auto reason = tuned.at("reason").get<std::string>();
  if (reason == "measuring") return "more steps, because threads are still being added";
  if (reason == "memory") return "a larger data.memory_bytes for more threads";
  if (reason == "cores") return "a cheaper stage, because no core is left for more threads";
  return reason == "no_gain" ? "a cheaper stage, because more threads did not help" : "";
}

// COLLECTIVE. Returns how many different numbers the ranks have together; a rank has `columns` of
// them at most.
int64_t count_together(const std::vector<int64_t>& own, int64_t columns, Group& group) {
  if (columns == 0) return 0;
  // Each rank fills a row of its own: its numbers + 1, and zeros behind them.
  const at::Tensor all = at::zeros({group.size(), columns}, at::kLong);
  auto* const numbers = all.mutable_data_ptr<int64_t>();
  std::ranges::transform(own, numbers + group.rank() * columns,
                         [](int64_t number) { return number + 1; });
  group.all_reduce(all);
  std::set<int64_t> different(numbers, numbers + all.numel());
  different.erase(0);
  return std::ssize(different);
}

}  // namespace

Json json_of_cache(const data::CacheUse& cache) {
  return {{"place", cache.place},     {"bytes", cache.bytes},  {"limit", cache.limit},
          {"samples", cache.samples}, {"full", cache.is_full}, {"hits", cache.hits},
          {"misses", cache.misses}};
}

Json report_of_input(const InputOfRank& own, Group& group) {
  // Numbers of each rank, and sums over processes: those of each stage, and some others.
  constexpr int64_t kOfRank = 5, kOfStage = 3, kOthers = 4;
  const auto ranks = static_cast<int64_t>(group.size());
  at::Tensor most = at::zeros({4}, at::kLong);
  auto* const largest_of_ranks = most.mutable_data_ptr<int64_t>();
  largest_of_ranks[0] = std::ssize(own.stages);
  largest_of_ranks[1] = own.served ? own.served->threads : 0;
  largest_of_ranks[2] = std::ssize(own.skipped);
  largest_of_ranks[3] = std::ssize(own.skipped_in_test);
  group.all_reduce(most, ReduceOp::max);
  const int64_t stages = largest_of_ranks[0];
  const auto service_threads = static_cast<double>(largest_of_ranks[1]);
  const at::Tensor all = at::zeros({ranks * kOfRank + kOfStage * stages + kOthers}, at::kDouble);
  auto* const numbers = all.mutable_data_ptr<double>();
  double* const mine = numbers + group.rank() * kOfRank;
  mine[0] = own.waited, mine[1] = own.step_seconds, mine[2] = own.tuning.setting.threads;
  mine[3] = own.tuning.setting.ahead, mine[4] = own.tuning.mean_threads;
  double* const sums = numbers + ranks * kOfRank;
  for (size_t i = 0; i < own.stages.size() && own.counts_process; ++i) {
    double* const of_stage = sums + kOfStage * static_cast<int64_t>(i);
    of_stage[0] = own.stages[i].seconds;
    of_stage[1] = static_cast<double>(own.stages[i].samples);
    of_stage[2] = static_cast<double>(own.stages[i].bytes);
  }
  double* const others = sums + kOfStage * stages;
  if (own.counts_process && own.served) {
    others[0] = static_cast<double>(own.served->served);
    others[1] = static_cast<double>(own.served->made_here);
  }
  if (own.counts_process && own.cache) {
    others[2] = static_cast<double>(own.cache->hits);
    others[3] = static_cast<double>(own.cache->misses);
  }
  group.all_reduce(all);
  const int64_t skipped = count_together(own.skipped, largest_of_ranks[2], group);
  const int64_t skipped_in_test = count_together(own.skipped_in_test, largest_of_ranks[3], group);

  Json input{{"waited_share", 0}, {"waited_share_of_rank", Json::array()},
             {"threads", 0},      {"threads_of_rank", Json::array()},
             {"prefetch", 0},     {"prefetch_of_rank", Json::array()}};
  double largest = 0, step_seconds = 0;
  LoadingThreads loading;
  data::LoaderSetting found;
  int64_t threads = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const double* const of_rank = numbers + rank * kOfRank;
    const double share = of_rank[1] > 0 ? std::min(1.0, of_rank[0] / of_rank[1]) : 0;
    const data::LoaderSetting setting{static_cast<int>(of_rank[2]), static_cast<int>(of_rank[3])};
    input["waited_share_of_rank"].push_back(share);
    input["threads_of_rank"].push_back(setting.threads);
    input["prefetch_of_rank"].push_back(setting.ahead);
    largest = std::max(largest, share);
    step_seconds = std::max(step_seconds, of_rank[1]);
    threads += setting.threads;
    found.threads = rank == 0 ? setting.threads : std::max(found.threads, setting.threads);
    found.ahead = rank == 0 ? setting.ahead : std::max(found.ahead, setting.ahead);
    // Without threads the ranks load by themselves.
    const double mean = setting.threads > 0 ? of_rank[4] : 1;
    loading.mean += mean;
    loading.seconds += of_rank[1] * mean;
  }
  input["waited_share"] = largest;
  input["threads"] = threads;
  input["prefetch"] = found.ahead;
  input["tuned"] = {{"threads", own.tuning.tunes_threads},
                    {"prefetch", own.tuning.tunes_prefetch},
                    {"settled", own.tuning.is_settled},
                    {"reason", data::to_string(own.tuning.reason)},
                    {"to_freeze", settings_of(found)}};
  input["skipped"] = skipped + skipped_in_test;
  input["skipped_in_test"] = skipped_in_test;
  if (own.served) {
    input["served"] = std::llround(others[0]);
    input["made_here"] = std::llround(others[1]);
    input["service_threads"] = std::llround(service_threads);
  }
  input["stages"] = Json::array();
  input["slowest_stage"] = nullptr;
  const LoadingThreads of_service{service_threads, service_threads * step_seconds};
  double slowest = 0;
  bool knows_service = false;  // Its stages tell what the wait for it is.
  for (int64_t i = 0; i < stages && i < std::ssize(own.stages); ++i) {
    const double* const of_stage = sums + kOfStage * i;
    const data::StageUse stage{own.stages[static_cast<size_t>(i)].name, of_stage[0],
                               std::llround(of_stage[1]), std::llround(of_stage[2]),
                               own.stages[static_cast<size_t>(i)].in_service};
    input["stages"].push_back(stage_json(stage, stage.in_service ? of_service : loading));
    knows_service = knows_service || (stage.in_service && stage.seconds > 0);
    const bool is_wait = !stage.in_service && own.served && stage.name == kInService;
    if (stage.seconds <= slowest || (is_wait && knows_service)) continue;
    slowest = stage.seconds;
    input["slowest_stage"] = stage.name;
    if (own.served) input["slowest_in_service"] = stage.in_service;
  }
  input["cache"] = nullptr;
  if (own.cache) {
    data::CacheUse cache = *own.cache;
    cache.hits = std::llround(others[2]), cache.misses = std::llround(others[3]);
    input["cache"] = json_of_cache(cache);
  }
  input["cache_advice"] = nullptr;
  if (largest >= kWorthAdvice && group.rank() == 0 && own.advice)
    if (const auto advice = own.advice())
      input["cache_advice"] = advice_json(*advice, input["stages"], own.cache_bytes);
  input["line"] = line_of_input(input);
  return input;
}

std::string settings_of(const data::LoaderSetting& setting) {
  return fmt::format("data.threads={} data.prefetch={}", setting.threads, setting.ahead);
}

namespace {

std::string line_of_service(const Json& input) {
  if (!input.contains("served")) return "";
  const auto made_here = input.at("made_here").get<int64_t>();
  std::string line = fmt::format("{} samples from the data service", input.at("served").dump());
  return made_here > 0 ? fmt::format("{}, {} made here", line, made_here) : line;
}

}  // namespace

std::string line_of_input(const Json& input) {
  const double waited = input.at("waited_share").get<double>();
  std::string line = line_of_service(input);
  if (waited < kWorthALine) return line;
  line += fmt::format("{}waited {:.1f} % of step time", line.empty() ? "" : "; ", waited * 100);
  if (!input.at("slowest_stage").is_string()) return line;
  const auto threads = input.at("threads").get<int64_t>();
  const double busy = busy_share_of(input.at("stages"), false);
  line += fmt::format("; slowest stage {}", input.at("slowest_stage").get<std::string>());
  const bool is_in_service = input.value("slowest_in_service", false);
  const double busy_there = is_in_service ? busy_share_of(input.at("stages"), true) : 0;
  if (is_in_service) {
    const auto there = input.at("service_threads").get<int64_t>();
    line += fmt::format(" of the data service, {:.1f} of its {} threads busy",
                        busy_there * static_cast<double>(there), there);
  } else if (threads > 0) {
    line +=
        fmt::format(", {:.1f} of {} threads busy", busy * static_cast<double>(threads), threads);
  }
  if (waited < kWorthAdvice) return line;
  std::vector<std::string> ways;
  if (busy_there >= kBusy)
    ways.emplace_back("more data.service_threads, or another server");
  else if (std::string way = way_by_threads(input, busy); !way.empty())
    ways.push_back(std::move(way));
  if (const Json& cache = input.at("cache_advice"); cache.is_object() && busy >= kBusy)
    ways.push_back(fmt::format("{} behind {} ({})", cache.at("stage").get<std::string>(),
                               cache.at("after").get<std::string>(),
                               format_bytes(cache.at("bytes").get<int64_t>())));
  if (const Json& cache = input.at("cache"); cache.is_object() && cache.at("full").get<bool>())
    ways.push_back(fmt::format("a larger data.cache_bytes, because {} hold {} samples",
                               format_bytes(cache.at("bytes").get<int64_t>()),
                               cache.at("samples").get<int64_t>()));
  return ways.empty() ? line : fmt::format("{}: {}", line, fmt::join(ways, ", or "));
}

}  // namespace trireme
