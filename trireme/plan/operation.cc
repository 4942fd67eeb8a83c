#include <trireme/plan/operation.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/plan/collective_scatter.h>
#include <algorithm>

namespace trireme::plan {

int64_t Steps::times(int64_t steps) const {
  const int64_t end = last < 0 ? steps : std::min(last, steps);
  return end < first ? 0 : (end - first + 1) / every;
}

Json Operation::to_json() const {
  Json json = {{"content", content},        {"name", name},         {"path", path},
               {"dtype", to_string(dtype)}, {"elements", elements}, {"operations", operations},
               {"bytes_sent", bytes_sent}};
  if (!algorithm.empty()) json["algorithm"] = algorithm;
  if (steps != Steps{})
    json["steps"] = {{"first", steps.first}, {"last", steps.last}, {"every", steps.every}};
  return json;
}

std::vector<Operation> as_of_job(std::vector<Operation> operations, const std::vector<int>& ranks,
                                 int job_ranks) {
  for (Operation& operation : operations)
    for (auto* const counts : {&operation.operations, &operation.bytes_sent}) {
      std::vector<int64_t> of_job(static_cast<size_t>(job_ranks), 0);
      for (size_t place = 0; place < ranks.size(); ++place)
        of_job[static_cast<size_t>(ranks[place])] = (*counts)[place];
      *counts = std::move(of_job);
    }
  return operations;
}

void add_beside(std::vector<Operation>& operations, std::vector<Operation> more) {
  for (Operation& each : more) {
    const auto is_alike = [&](const Operation& known) {
      return known.content == each.content && known.name == each.name && known.path == each.path &&
             known.algorithm == each.algorithm && known.dtype == each.dtype &&
             known.elements == each.elements && known.steps == each.steps;
    };
    const auto found = std::ranges::find_if(operations, is_alike);
    if (found == operations.end()) {
      operations.push_back(std::move(each));
      continue;
    }
    for (size_t rank = 0; rank < each.operations.size(); ++rank) {
      found->operations[rank] += each.operations[rank];
      found->bytes_sent[rank] += each.bytes_sent[rank];
    }
  }
}

// The carrier that joins all the ranks of the next operation, or null if hosts act first.
const Carrier* OperationPlanner::flat() const {
  if (!placement_.between) return &placement_.inside.front();
  const bool joins_all =
      among_ == Among::leaders || placement_.between->size() == placement_.ranks();
  return joins_all ? &*placement_.between : nullptr;
}

int OperationPlanner::ranks() const {
  return among_ == Among::leaders ? placement_.host_count() : placement_.ranks();
}

int OperationPlanner::rank_at(int place) const {
  return among_ == Among::leaders ? placement_.inside[static_cast<size_t>(place)].ranks.front()
                                  : place;
}

const CollectivePlan& OperationPlanner::plan_of(const Carrier& carrier, Collective collective,
                                                int64_t bytes) {
  SizeChoices& choices = choices_[{&carrier, collective}];
  if (choices.empty())
    choices = placement_.table.choices(carrier.path, collective, carrier.size(), carrier.hosts);
  const Algorithm algorithm = choices[choose(choices, bytes)].algorithm;
  const auto [found, is_new] = plans_.try_emplace({&carrier, collective, algorithm});
  if (is_new)
    found->second = plan_collective(collective, algorithm, carrier.size(), 0, carrier.hosts);
  return found->second;
}

Operation& OperationPlanner::add(const std::string& content, const std::string& name,
                                 const std::string& path, const std::string& algorithm,
                                 DType dtype, int64_t elements) {
  const std::vector<int64_t> none(static_cast<size_t>(placement_.ranks()), 0);
  return operations_.emplace_back(
      Operation{content, name, path, algorithm, dtype, elements, steps_, none, none});
}

// Broadcasts have root 0.
void OperationPlanner::collective(const Carrier& carrier, Collective collective,
                                  const std::string& content, DType dtype, int64_t elements) {
  if (carrier.size() < 2) return;
  const int64_t bytes = elements * bytes_of(dtype), n = carrier.size();
  const auto put = [&](Operation& operation, auto bytes_of_place) {
    for (int place = 0; place < carrier.size(); ++place) {
      const auto rank = static_cast<size_t>(carrier.ranks[static_cast<size_t>(place)]);
      operation.operations[rank] = 1;
      operation.bytes_sent[rank] = bytes_of_place(place);
    }
  };
  const std::string name(to_string(collective));
  if (carrier.runs_plans()) {
    const CollectivePlan& plan = plan_of(carrier, collective, bytes);
    return put(
        add(content, name, carrier.path, std::string(to_string(plan.algorithm)), dtype, elements),
        [&](int place) { return plan.bytes_sent(place, elements, bytes_of(dtype)); });
  }
  // Backends with algorithms of their own: the bytes of the best known ones.
  put(add(content, name, carrier.path, "", dtype, elements), [&](int place) -> int64_t {
    switch (collective) {
      case Collective::all_reduce: return 2 * (n - 1) * bytes / n;
      case Collective::reduce_scatter:
      case Collective::all_gather: return (n - 1) * (bytes / n);
      case Collective::broadcast: return place == 0 ? bytes : 0;
      case Collective::all_to_all: return (n - 1) * (bytes / n / n);
    }
    return 0;
  });
}

void OperationPlanner::all_reduce(const std::string& content, DType dtype, int64_t elements) {
  if (const Carrier* const all = flat())
    return collective(*all, Collective::all_reduce, content, dtype, elements);
  for (const Carrier& host : placement_.inside)
    collective(host, Collective::all_reduce, content + ", on a host", dtype, elements);
  collective(*placement_.between, Collective::all_reduce, content + ", between hosts", dtype,
             elements);
  for (const Carrier& host : placement_.inside)
    collective(host, Collective::broadcast, content + ", on a host", dtype, elements);
}

void OperationPlanner::reduce_scatter(const std::string& content, DType dtype, int64_t elements) {
  if (const Carrier* const all = flat())
    return collective(*all, Collective::reduce_scatter, content, dtype, elements);
  std::vector<std::vector<int>> hosts;
  for (const Carrier& host : placement_.inside) hosts.push_back(host.ranks);
  const int64_t block = elements / placement_.ranks();
  const ScatterOverHosts scatter(hosts, block);
  for (int host = 0; host < placement_.host_count(); ++host) {
    const Carrier& carrier = placement_.inside[static_cast<size_t>(host)];
    collective(carrier, Collective::reduce_scatter, content + ", on a host", dtype,
               carrier.size() * (block + scatter.portion(host)));
  }
  between_hosts(content, Collective::reduce_scatter, dtype, elements,
                [&](int host, int place) { return scatter.sent_between_hosts(host, place); });
}

void OperationPlanner::all_to_all(const std::string& content, DType dtype, int64_t elements) {
  if (const Carrier* const all = flat())
    return collective(*all, Collective::all_to_all, content, dtype, elements * all->size());
  const int64_t ranks = placement_.ranks(), block = elements / ranks;
  for (const Carrier& host : placement_.inside)
    collective(host, Collective::all_to_all, content + ", on a host", dtype,
               block * host.size() * host.size());
  between_hosts(content, Collective::all_to_all, dtype, elements * ranks, [&](int host, int) {
    return (ranks - placement_.inside[static_cast<size_t>(host)].size()) * block;
  });
}

// An operation in which each rank sends to ranks of other hosts. `sent(host, place)`: the
// elements.
template <typename Sent>
void OperationPlanner::between_hosts(const std::string& content, Collective collective,
                                     DType dtype, int64_t elements, Sent sent) {
  Operation& between = add(content + ", between hosts", std::string(to_string(collective)),
                           placement_.between->path, "", dtype, elements);
  for (int host = 0; host < placement_.host_count(); ++host) {
    const Carrier& carrier = placement_.inside[static_cast<size_t>(host)];
    for (int place = 0; place < carrier.size(); ++place) {
      const auto rank = static_cast<size_t>(carrier.ranks[static_cast<size_t>(place)]);
      between.operations[rank] = 1;
      between.bytes_sent[rank] = sent(host, place) * bytes_of(dtype);
    }
  }
}

// Hosts may have different numbers of ranks, so between hosts blocks of equal size travel.
void OperationPlanner::all_gather(const std::string& content, DType dtype, int64_t elements) {
  if (const Carrier* const all = flat())
    return collective(*all, Collective::all_gather, content, dtype, elements);
  const int64_t block = elements / placement_.ranks();
  int64_t largest = 0;
  for (const Carrier& host : placement_.inside) {
    collective(host, Collective::all_gather, content + ", on a host", dtype, host.size() * block);
    largest = std::max<int64_t>(largest, host.size());
  }
  collective(*placement_.between, Collective::all_gather, content + ", between hosts", dtype,
             placement_.host_count() * largest * block);
  for (const Carrier& host : placement_.inside)
    collective(host, Collective::broadcast, content + ", on a host", dtype, elements);
}

void OperationPlanner::broadcast(const std::string& content, DType dtype, int64_t elements) {
  if (const Carrier* const all = flat())
    return collective(*all, Collective::broadcast, content, dtype, elements);
  // The root is the first rank of the first host, whose other ranks receive it first.
  collective(placement_.inside.front(), Collective::broadcast, content + ", on the first host",
             dtype, elements);
  collective(*placement_.between, Collective::broadcast, content + ", between hosts", dtype,
             elements);
  for (const Carrier& host : placement_.inside)
    collective(host, Collective::broadcast, content + ", on a host", dtype, elements);
}

void OperationPlanner::send(const std::string& content, int from, int to, DType dtype,
                            int64_t elements) {
  const auto sender = static_cast<size_t>(rank_at(from)),
             receiver = static_cast<size_t>(rank_at(to));
  const int host = placement_.hosts[sender];
  const std::string& path = host == placement_.hosts[receiver]
                                ? placement_.inside[static_cast<size_t>(host)].path
                                : placement_.between->path;
  const auto is_alike = [&](const Operation& known) {
    return known.name == "send" && known.content == content && known.path == path &&
           known.dtype == dtype && known.steps == steps_;
  };
  // Messages of equal content come one after another, over at most two paths.
  const auto recent = std::min<ptrdiff_t>(2, std::ssize(operations_));
  const auto found = std::find_if(operations_.end() - recent, operations_.end(), is_alike);
  Operation& messages =
      found == operations_.end() ? add(content, "send", path, "", dtype, 0) : *found;
  messages.elements += elements;
  ++messages.operations[sender];
  messages.bytes_sent[sender] += elements * bytes_of(dtype);
}

}  // namespace trireme::plan
