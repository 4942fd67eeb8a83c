#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/hash.h>
#include <trireme/parallel/agreement.h>
#include <cstring>
#include <exception>
#include <map>

namespace trireme {
namespace {

int64_t digest_of(const std::string& text) {
  return static_cast<int64_t>(std::stoull(sha256_hex(text).substr(0, 16), nullptr, 16));
}

// The entries by name: "options.buckets.first_bytes".
std::map<std::string, std::string> entries_of(const std::string& text) {
  std::map<std::string, std::string> entries;
  const Json flat = Json::parse(text).flatten();
  for (const auto& [pointer, value] : flat.items()) {
    std::string name = pointer.empty() ? pointer : pointer.substr(1);
    for (char& c : name)
      if (c == '/') c = '.';
    entries[name] = value.dump();
  }
  return entries;
}

std::string value_at(const std::map<std::string, std::string>& entries, const std::string& name) {
  const auto found = entries.find(name);
  return found == entries.end() ? "nothing" : found->second;
}

// The first name with another value in `b` than in `a`.
std::string first_difference(const std::map<std::string, std::string>& a,
                             const std::map<std::string, std::string>& b) {
  auto all = a;
  all.insert(b.begin(), b.end());
  for (const auto& [name, value] : all)
    if (value_at(a, name) != value_at(b, name)) return name;
  return {};
}

}  // namespace

std::string broadcast_text(Group& group, const std::string& mine, int root) {
  const at::Tensor length = at::full({1}, static_cast<int64_t>(mine.size()), at::kLong);
  group.broadcast(length, root);
  const at::Tensor bytes = at::empty({length.item<int64_t>()}, at::kByte);
  if (group.rank() == root) std::memcpy(bytes.mutable_data_ptr(), mine.data(), mine.size());
  group.broadcast(bytes, root);
  return {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()};
}

Json found_by_first(Group& group, const std::function<Json()>& find) {
  Json told;
  std::exception_ptr refused;
  if (group.rank() == 0) {
    try {
      told = {{"found", find()}};
    } catch (const std::exception& error) {
      refused = std::current_exception();
      const auto [what, remedy] = parts_of(error);
      const auto* const known = dynamic_cast<const Error*>(&error);
      told = {{"refused", what},
              {"remedy", remedy},
              {"code", static_cast<int>(known ? known->code() : ErrorCode::internal)}};
    }
  }
  told = Json::parse(
      broadcast_text(group, told.dump(-1, ' ', false, Json::error_handler_t::replace), 0));
  if (refused) std::rethrow_exception(refused);
  if (told.contains("refused"))
    throw Error(static_cast<ErrorCode>(told["code"].get<int>()), "parallel",
                told["refused"].get<std::string>(), told["remedy"].get<std::string>());
  return told["found"];
}

void agree(Group& group, const Json& mine) {
  if (group.size() == 1) return;
  const std::string text = mine.dump();
  const at::Tensor own = at::full({1}, digest_of(text), at::kLong),
                   all = at::empty({group.size()}, at::kLong);
  group.all_gather(own, all);
  const auto* const digests = all.const_data_ptr<int64_t>();
  int other = 1;
  while (other < group.size() && digests[other] == digests[0]) ++other;
  if (other == group.size()) return;
  const auto first = entries_of(broadcast_text(group, text, 0)),
             its = entries_of(broadcast_text(group, text, other));
  const std::string name = first_difference(first, its);
  throw Error(ErrorCode::invalid_argument, "parallel",
              fmt::format("the ranks differ: {} is {} on rank 0, and {} on rank {}", name,
                          value_at(first, name), value_at(its, name), other),
              "the same model, options and optimizer on every rank");
}

}  // namespace trireme
