// The launchers whose environment Trireme understands. The first one whose variables are there
// counts.
#pragma once
#include <trireme/base/environment.h>
#include <trireme/membership/identity.h>
#include <string>
#include <vector>

namespace trireme::membership {

struct LauncherRow {
  Launcher launcher = Launcher::alone;
  bool (*is_here)(const Environment&) = nullptr;
  Identity (*identity)(const Environment&) = nullptr;
  // The variables that it reads, and others of the same launcher that users see beside them.
  std::vector<std::string> reads, others;
  // Why it does not count, if some of its variables are there but no launcher is.
  std::string (*why_not)(const Environment&) = nullptr;
};

const std::vector<LauncherRow>& launcher_table();
// The row that counts; nullptr: this process is alone.
const LauncherRow* find_launcher(const Environment& environment);

// The decision of resolve_identity() about the environment, for `trireme doctor`.
struct Explanation {
  struct Ignored {
    std::string title;                   // The launcher's.
    std::vector<std::string> variables;  // "NAME=value"
    std::string why;
  };
  std::string title;                 // The launcher that counts; empty: none.
  std::vector<std::string> decided;  // "NAME=value" of each variable that it reads.
  std::vector<Ignored> ignored;
  std::string describe() const;  // A line for each launcher. Values are cut where they are long.
};
// Never throws: it also explains an environment that resolve_identity() refuses.
Explanation explain_identity(const Environment& environment);

}  // namespace trireme::membership
