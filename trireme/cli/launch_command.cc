// `trireme launch`: starts any programme as the workers of one job.
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/cli/commands.h>
#include <trireme/cli/loop_faults.h>
#include <trireme/cli/node_options.h>
#include <trireme/faults/faults.h>
#include <trireme/membership/token_file.h>
#include <trireme/run/config.h>
#include <algorithm>
#include <memory>
#include <optional>

namespace trireme::cli {
namespace {

constexpr Milliseconds kElasticHeartbeatTimeout{2000};

struct LaunchArguments {
  std::optional<int> workers;
  std::string elastic;
  std::optional<int> unit, ps;
  bool chief = false, evaluator = false;
  std::vector<std::string> roles, agreements;
  std::string inject;
  int threads = 0;
  bool no_prefix = false;
  std::string stop_grace = "30s", loss_grace = "5s";
  std::vector<std::string> program;
  NodeOptions node;
};

Milliseconds duration_of(const std::string& option, const std::string& text) {
  try {
    if (const Milliseconds time = parse_duration(text); time >= Milliseconds(0)) return time;
  } catch (const Error&) {
  }
  throw Error(ErrorCode::invalid_argument, "cli",
              fmt::format("{} is '{}'; expected: duration, such as 250ms or 5s", option, text),
              option + " 30s");
}

// --elastic and --unit. An elastic job begins with MAX workers, unless --workers names a number.
std::optional<membership::Elastic> elastic_of(const LaunchArguments& arguments) {
  if (arguments.elastic.empty()) {
    if (arguments.unit)
      throw Error(ErrorCode::invalid_argument, "cli",
                  fmt::format("--unit {} without --elastic: the workers of this job do not come "
                              "and go",
                              *arguments.unit),
                  "--elastic MIN:MAX with multiples of the unit, or no --unit");
    return std::nullopt;
  }
  membership::Elastic elastic = membership::parse_elastic(arguments.elastic, "--elastic");
  elastic.unit = arguments.unit.value_or(1);
  return elastic;
}

// --ps, --evaluator, --role and --agree. The chief is a worker.
membership::Roles roles_of(const LaunchArguments& arguments) {
  std::vector<membership::Role> roles;
  const auto add = [&roles](const std::string& name, int count) {
    roles.push_back({.name = name, .count = count, .on_loss = membership::usual_on_loss(name)});
  };
  if (arguments.ps) add("ps", *arguments.ps);
  if (arguments.evaluator) add("evaluator", 1);
  for (const std::string& text : arguments.roles)
    roles.push_back(membership::parse_role(text, "--role"));
  for (const std::string& text : arguments.agreements)
    membership::add_agreement(roles, text, "--agree");
  if (arguments.chief &&
      std::ranges::count(roles, membership::kChiefRole, &membership::Role::name) > 0)
    throw Error(ErrorCode::invalid_argument, "cli",
                "--chief makes worker 0 the chief, and --role declares a role of this name too",
                "one of the two, or another name for the role");
  return membership::Roles(std::move(roles));
}

// The faults of --inject, drawn once, in the environment of the workers. In an elastic job a
// worker that takes the place of a killed one must know that the fault has struck.
std::unique_ptr<LoopFaults> faults_of(const LaunchArguments& arguments,
                                      launch::SupervisorOptions& options) {
  if (arguments.inject.empty()) return nullptr;
  const auto faults = schedule_faults(parse_faults(arguments.inject), options.workers);
  for (const Fault& fault : faults)
    if (fault.kind != FaultKind::kill && fault.kind != FaultKind::stop &&
        fault.kind != FaultKind::slow)
      throw Error(ErrorCode::unsupported, "cli",
                  fmt::format("--inject {}: in a programme of your own kill, stop and slow can "
                              "strike",
                              fault.text()),
                  "one of these, or trireme train --inject");
  if (options.elastic && options.nodes > 1)
    throw Error(
        ErrorCode::unsupported, "cli",
        fmt::format("--inject with --elastic and --nodes {}: a worker that takes the place "
                    "of another on another host does not know that a fault has struck",
                    options.nodes),
        "one of the three less");
  const bool leaves_marks = std::ranges::any_of(
      faults, [](const Fault& fault) { return fault.kind != FaultKind::slow; });
  auto all = std::make_unique<LoopFaults>(leaves_marks);
  options.environment.emplace_back(kInjectVariable, to_text(faults));
  options.environment.emplace_back(kInjectMarksVariable, all->marks().string());
  return all;
}

int launch_job(const LaunchArguments& arguments) {
  if (arguments.program.empty())
    throw Error(ErrorCode::invalid_argument, "cli", "no programme to launch is named",
                "trireme launch --workers 2 -- PROGRAM ARGUMENTS");
  membership::TokenFile::clear_abandoned(Environment::of_process());
  launch::SupervisorOptions options;
  arguments.node.apply(options);
  options.elastic = elastic_of(arguments);
  options.roles = roles_of(arguments);
  options.has_chief = arguments.chief;
  options.workers = arguments.workers.value_or(options.elastic ? options.elastic->maximum : 2);
  require_workers(options.workers);
  // An elastic job continues after a wrong alarm, so it need not wait long.
  if (options.elastic) options.heartbeat_timeout = kElasticHeartbeatTimeout;
  options.threads_per_worker = arguments.threads;
  options.prefix_output = !arguments.no_prefix;
  options.stop_grace = duration_of("--stop-grace", arguments.stop_grace);
  options.loss_grace = duration_of("--loss-grace", arguments.loss_grace);
  options.command = arguments.program;
  options.is_own_programme = true;
  const auto faults = faults_of(arguments, options);
  const int code = launch::supervise(options);
  if (faults && options.nodes == 1 && faults->none_has_struck())
    log_warning(
        "none of the faults of --inject has struck: {}. They strike in loops with "
        "Distributed or DataParallel (docs/own_loop.md), at the step and phase that they name",
        arguments.inject);
  return code;
}

}  // namespace

void add_launch(Command app) {
  auto arguments = std::make_shared<LaunchArguments>();
  Command command =
      app.subcommand("launch",
                     "Start a programme as the workers and other tasks of one job, and watch "
                     "them");
  command.option("--workers", arguments->workers,
                 "Worker processes of the whole job (default 2, with --elastic MAX)");
  command.option("--elastic", arguments->elastic,
                 "MIN:MAX: lost workers are replaced, and the job continues with MIN or more. The "
                 "programme regroups (World::regroup, or the Trainer does it)");
  command.option("--unit", arguments->unit,
                 "With --elastic: this many workers come and go together, such as the stages of a "
                 "pipeline (default 1)");
  command.option("--ps", arguments->ps,
                 "Parameter servers: the role ps, whose lost tasks are replaced");
  command.flag("--chief", arguments->chief,
               "Worker 0 is the chief (TRIREME_ROLE); it is one of the --workers");
  command.flag("--evaluator", arguments->evaluator,
               "An evaluator: a role of one task. If it is lost, the others are told");
  command.repeated("--role", arguments->roles,
                   "NAME=COUNT[:LOSS]: a role of your own. LOSS says what happens when one of its "
                   "tasks is lost: end (the default; as for a lost worker), tell or replace. May "
                   "be repeated");
  command.repeated("--agree", arguments->agreements,
                   "ROLE,ROLE:FACT,FACT: tasks of these roles (worker is one) have these facts in "
                   "common, or are refused (World::set_terms). May be repeated");
  command.option("--threads", arguments->threads,
                 "OMP_NUM_THREADS and MKL_NUM_THREADS of each worker (default: cores / workers of "
                 "this host)");
  command.option("--inject", arguments->inject,
                 "Faults to inject into a loop with Distributed or DataParallel, such as "
                 "\"kill:rank=1@step=40\" (docs/faults.md)");
  command.flag("--no-prefix", arguments->no_prefix, "Print output without the worker's number");
  command.option("--stop-grace", arguments->stop_grace,
                 "After a request to stop, workers have this long to save and end; then they are "
                 "killed (default 30s)");
  command.option("--loss-grace", arguments->loss_grace,
                 "After a worker was lost, the other workers have this long to end by themselves "
                 "(default 5s)");
  arguments->node.add_to(command);
  command.option(kProgramArgument, arguments->program, "Programme and arguments, after --");
  command.examples({"trireme launch --workers 2 -- ./my_training --epochs 3",
                    "trireme launch --elastic 1:4 -- ./my_training"});
  command.action([arguments] { return launch_job(*arguments); });
}

}  // namespace trireme::cli
