#include <trireme/checkpoint/safetensors_header.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <trireme/checkpoint/safetensors_dtype.h>
#include <unordered_set>

namespace trireme::checkpoint {
namespace {

std::string quoted(const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    throw Error(ErrorCode::invalid_argument, "checkpoint",
                "the name or metadata " +
                    Json(text).dump(-1, ' ', true, Json::error_handler_t::replace) +
                    " is no UTF-8",
                "another name");
  }
}

std::string metadata_json(const std::map<std::string, std::string>& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", quoted(key), quoted(value));
  return "{" + text + "}";
}

}  // namespace

std::string header_bytes(const SafetensorsHeader& header) {
  std::string json = "{";
  if (!header.metadata.empty()) json += "\"__metadata__\":" + metadata_json(header.metadata);
  std::unordered_set<std::string> names{"__metadata__"};
  for (const HeaderTensor& tensor : header.tensors) {
    if (!names.insert(tensor.spec.name).second)
      throw Error(
          ErrorCode::invalid_argument, "checkpoint",
          fmt::format("the tensor name {} is reserved or used twice", quoted(tensor.spec.name)),
          "another name");
    if (safetensors_dtype(tensor.spec.dtype).empty())
      throw Error(ErrorCode::unsupported, "checkpoint",
                  fmt::format("{} is {}, for which .safetensors has no name",
                              quoted(tensor.spec.name), plan::to_string(tensor.spec.dtype)),
                  "a .pt file");
    if (json.size() > 1) json += ',';
    json += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        quoted(tensor.spec.name), safetensors_dtype(tensor.spec.dtype),
                        fmt::join(tensor.spec.shape, ","), tensor.begin, tensor.end);
  }
  json += '}';
  while ((8 + json.size()) % kDataAlignment != 0) json += ' ';
  if (json.size() > kMaxHeaderBytes)
    throw Error(
        ErrorCode::invalid_argument, "checkpoint",
        fmt::format("a header of {} bytes is over the format's {}", json.size(), kMaxHeaderBytes),
        "fewer tensors in one file");
  std::string length;
  for (int byte = 0; byte < 8; ++byte)
    length += static_cast<char>(json.size() >> (8 * byte) & 0xff);
  return length + json;
}

}  // namespace trireme::checkpoint
