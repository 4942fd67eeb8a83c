#include <trireme/cli/worker/commands.h>

namespace trireme::cli {

void add_worker_commands(Command app) {
  add_worker_train(app);
  add_worker_plan(app);
  add_worker_doctor(app);
  add_worker_data(app);
}

}  // namespace trireme::cli
