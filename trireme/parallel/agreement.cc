#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/hash.h>
#include <trireme/base/log.h>
#include <trireme/parallel/agreement.h>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <future>
#include <map>

namespace trireme {
namespace {

constexpr std::chrono::milliseconds kMeetAgain{500};

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

namespace {

// An exception for other ranks.
Json as_told(const std::exception& error) {
  const auto [what, remedy] = parts_of(error);
  const auto* const known = dynamic_cast<const Error*>(&error);
  return {{"refused", what},
          {"remedy", remedy},
          {"code", static_cast<int>(known ? known->code() : ErrorCode::internal)}};
}
[[noreturn]] void throw_told(const Json& told) {
  throw Error(static_cast<ErrorCode>(told["code"].get<int>()), "parallel",
              told["refused"].get<std::string>(), told["remedy"].get<std::string>());
}

// COLLECTIVE. The value of rank `root`.
Json told_by(Group& group, const Json& mine, int root) {
  return Json::parse(
      broadcast_text(group, mine.dump(-1, ' ', false, Json::error_handler_t::replace), root));
}

}  // namespace

Json found_by_first(Group& group, const std::function<Json()>& find) {
  Json told;
  std::exception_ptr refused;
  if (group.rank() == 0) {
    try {
      told = {{"found", find()}};
    } catch (const std::exception& error) {
      refused = std::current_exception();
      told = as_told(error);
    }
  }
  told = told_by(group, told, 0);
  if (refused) std::rethrow_exception(refused);
  if (told.contains("refused")) throw_told(told);
  return told["found"];
}

Json found_by_first_in_time(Group& group, const std::function<Json()>& find) {
  std::future<Json> found;
  if (group.rank() == 0)
    found = std::async(std::launch::async, [&] {
      set_thread_rank(group.rank(), group.size());
      return find();
    });
  at::Tensor under_way = at::zeros({1}, at::kLong);
  do {
    const bool is_done =
        group.rank() != 0 || found.wait_for(kMeetAgain) == std::future_status::ready;
    under_way[0] = is_done ? 0 : 1;
    group.all_reduce(under_way);
  } while (under_way.item<int64_t>() > 0);
  return found_by_first(group, [&] { return found.get(); });
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

void run_on_all(Group& group, const std::function<void()>& act) {
  Json mine;
  std::exception_ptr refused;
  try {
    act();
  } catch (const Error& error) {
    refused = std::current_exception();
    mine = as_told(error);
  }
  const at::Tensor own = at::full({1}, refused ? 1 : 0, at::kLong),
                   all = at::empty({group.size()}, at::kLong);
  group.all_gather(own, all);
  const auto* const flags = all.const_data_ptr<int64_t>();
  const auto first = static_cast<int>(std::find(flags, flags + group.size(), 1) - flags);
  if (first == group.size()) return;
  const Json told = told_by(group, mine, first);
  if (refused) std::rethrow_exception(refused);
  throw_told(told);
}

}  // namespace trireme
