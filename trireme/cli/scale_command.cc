// `trireme scale`: changes the number of workers of a running elastic job.
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/cli/commands.h>
#include <trireme/cli/running_job.h>

namespace trireme::cli {
namespace {

int scale(int workers, const JobChoice& choice) {
  const RunningJob job = find_job(choice);
  const Json answer = JobCall(job).ask({{"op", "resize"}, {"target", workers}});
  if (const auto refused = answer.at("refused").get<std::string>(); !refused.empty())
    throw Error(ErrorCode::invalid_argument, "cli", refused,
                "a job with --elastic, and a number between its MIN and MAX");
  fmt::print("job {}: {} workers now, {} from the next steps on\n", job.name,
             answer.at("workers").get<int>(), workers);
  return kExitOk;
}

}  // namespace

void add_scale(Command app) {
  struct Arguments {
    int workers = 1;
    JobChoice job;
  };
  auto arguments = std::make_shared<Arguments>();
  Command command =
      app.subcommand("scale", "Change the number of workers of a running elastic job");
  command.required("workers", arguments->workers, "The new number, between the job's MIN and MAX");
  add_job_choice(command, arguments->job);
  command.examples({"trireme scale 4"});
  command.action([arguments] { return scale(arguments->workers, arguments->job); });
}

}  // namespace trireme::cli
