#include <trireme/checkpoint/history.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/checkpoint/digest.h>
#include <trireme/checkpoint/open_checkpoint.h>
#include <cstring>

namespace trireme::checkpoint {
namespace {

constexpr const char* kLoss = "loss";

}  // namespace

HistoryFile::HistoryFile(const std::vector<double>& losses) {
  const TensorView tensor{{kLoss, {static_cast<int64_t>(losses.size())}, plan::DType::float64},
                          std::as_bytes(std::span(losses))};
  layout_ = lay_out({tensor});
  content_ = {kHistoryFile, {std::as_bytes(std::span(layout_.header)), tensor.bytes}};
}

std::vector<double> read_history(const std::filesystem::path& checkpoint,
                                 const Manifest& manifest) {
  const std::filesystem::path path = checkpoint / kHistoryFile;
  const std::string& expected = manifest.files.at(kHistoryFile);
  require_digest(path, digest_of_file(path, expected, 1), expected);
  const SafetensorsFile file(path);
  const TensorView* const tensor = file.find(kLoss);
  if (tensor == nullptr || tensor->spec.dtype != plan::DType::float64 ||
      tensor->spec.shape.size() != 1)
    throw Error(ErrorCode::corrupt, "checkpoint",
                fmt::format("{} has no list of losses of float64", path.string()),
                "an older checkpoint");
  std::vector<double> losses(tensor->bytes.size() / sizeof(double));
  if (!losses.empty()) std::memcpy(losses.data(), tensor->bytes.data(), tensor->bytes.size());
  return losses;
}

}  // namespace trireme::checkpoint
