// The folder of the marks of the faults that `trireme launch --inject` puts into a programme.
#pragma once
#include <filesystem>

namespace trireme::cli {

class LoopFaults {
 public:
  // Makes a folder of this process's own under the system's temporary folder, and removes those of
  // launchers that were killed. Throws Error(io).
  LoopFaults();
  ~LoopFaults();  // Removes the folder.
  LoopFaults(const LoopFaults&) = delete;
  const std::filesystem::path& marks() const { return marks_; }

 private:
  std::filesystem::path marks_;
};

}  // namespace trireme::cli
