#include <trireme/base/version.h>
#include <trireme/cli/commands.h>

namespace trireme::cli {

void add_commands(CommandLine& app) {
  app.version(std::string(version()));
  app.examples({"trireme train examples/digits.yaml --workers 2", "trireme help train"});
  add_train(app);
  add_launch(app);
  add_plan(app);
  add_bench(app);
  add_ckpt(app);
  add_data(app);
  add_scale(app);
  add_consistency(app);
  add_doctor(app);
  app.help_command();
}

}  // namespace trireme::cli
