// history.safetensors: the loss of every step so far, as a float64 tensor "loss". The manifest of
// a million steps would be 20 MB of text.
#pragma once
#include <trireme/checkpoint/parts.h>
#include <trireme/checkpoint/safetensors.h>
#include <filesystem>
#include <vector>

namespace trireme::checkpoint {

inline constexpr const char* kHistoryFile = "history.safetensors";

// `losses` must outlive it.
class HistoryFile {
 public:
  explicit HistoryFile(const std::vector<double>& losses);
  HistoryFile(const HistoryFile&) = delete;
  HistoryFile& operator=(const HistoryFile&) = delete;
  const OutgoingFile& content() const { return content_; }

 private:
  SafetensorsLayout layout_;
  OutgoingFile content_;
};

// Verifies the checkpoint's history and returns it. Throws Error(corrupt | io).
std::vector<double> read_history(const std::filesystem::path& checkpoint,
                                 const Manifest& manifest);

}  // namespace trireme::checkpoint
