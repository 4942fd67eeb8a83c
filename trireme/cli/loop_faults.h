// The folder of the marks of the faults that `trireme launch --inject` puts into a programme.
#pragma once
#include <filesystem>

namespace trireme::cli {

class LoopFaults {
 public:
  // Makes a folder of this process's own under the system's temporary folder, and removes those of
  // launchers that were killed. `leaves_marks`: some fault leaves a mark when it strikes. Throws
  // Error(io).
  explicit LoopFaults(bool leaves_marks);
  ~LoopFaults();  // Removes the folder.
  LoopFaults(const LoopFaults&) = delete;
  const std::filesystem::path& marks() const { return marks_; }
  bool none_has_struck() const;  // Although some would have left a mark.

 private:
  std::filesystem::path marks_;
  const bool leaves_marks_;
};

}  // namespace trireme::cli
