#include <trireme/plan/ps_options.h>

#include <trireme/config/row.h>
#include <algorithm>
#include <string>

namespace trireme::plan {
namespace {

const config::OnlyFor kWithServers{"strategy.name", {"parameter_server"}};

std::string consistency_text(const ConsistencyOptions& options) {
  return std::string(to_string(options.consistency));
}

void set_consistency(ConsistencyOptions& options, const std::string& text) {
  options.consistency = consistency_from_string(text);
}

}  // namespace

config::Rows rows_of(const ConsistencyOptions*) {
  using O = ConsistencyOptions;
  return config::all_of<O>(
      {config::row_as_text<O>(
           consistency_text, set_consistency,
           {.name = "ps.consistency",
            .meaning = "What a worker has seen of the others' pushes when it begins a step "
                       "(docs/parameter_server.md).",
            .choices = config::one_of({"sync", "async", "stale", "delay_compensated"}),
            .only_for = kWithServers}),
       config::row(&O::staleness,
                   {.name = "ps.staleness",
                    .meaning = "With ps.consistency=stale: the steps by which a worker may be "
                               "ahead of the slowest one.",
                    .range = config::count_from(0),
                    .only_for = kWithServers}),
       config::row(&O::backup_workers,
                   {.name = "ps.backup_workers",
                    .meaning = "With ps.consistency=sync: the pushes of a step for which an "
                               "update does not wait.",
                    .range = config::count_from(0),
                    .only_for = kWithServers})});
}

config::Rows rows_of(const PsOptions*) {
  using O = PsOptions;
  return config::all_of<O>(
      {config::row(&O::servers, {.name = "ps.servers",
                                 .meaning = "Parameter servers in the job. --ps sets it.",
                                 .range = config::count_from(0),
                                 .only_for = kWithServers}),
       config::part(&O::consistency),
       config::row(&O::replication,
                   {.name = "ps.replication",
                    .meaning = "Servers that have each piece of the model; auto: 2, or 1 if there "
                               "is one server. Training goes on after the loss of all of them but "
                               "one.",
                    .range = config::count_from(1),
                    .automatic = 0,
                    .only_for = kWithServers}),
       config::row(&O::compensation,
                   {.name = "ps.compensation",
                    .meaning = "With ps.consistency=delay_compensated: the factor of gradient x "
                               "gradient x distance.",
                    .range = config::at_least(0),
                    .only_for = kWithServers}),
       config::row(
           &O::overlap,
           {.name = "ps.overlap",
            .meaning = "Between hosts, gradients go to the servers while backward computes "
                       "others. Not with strategy.compression, nor with train.clip_norm "
                       "at the workers' own pace.",
            .only_for = kWithServers}),
       config::row(&O::patience,
                   {.name = "ps.patience",
                    .meaning = "The longest wait of a worker for another one, or for a server.",
                    .range = config::above(0),
                    .only_for = kWithServers,
                    .agreed = false})});
}

int replication_of(const PsOptions& options) {
  return options.replication > 0 ? options.replication : std::min(2, options.servers);
}

bool is_in_step(const ConsistencyOptions& options) {
  return options.consistency == Consistency::sync && options.backup_workers == 0;
}

}  // namespace trireme::plan
