#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <trireme/comm/tcp/call.h>
#include <trireme/plan/collective_plan.h>

namespace trireme::comm {
namespace {

std::string form_of(const Call& call) {
  const auto type = c10::toString(static_cast<at::ScalarType>(call.type));
  switch (call.operation) {
    case Operation::all_reduce:
      return fmt::format("{}, {} by {}", type, to_string(static_cast<ReduceOp>(call.detail)),
                         plan::to_string(static_cast<plan::Algorithm>(call.algorithm)));
    case Operation::reduce_scatter:
      return fmt::format("{}, {}", type, to_string(static_cast<ReduceOp>(call.detail)));
    case Operation::broadcast:
    case Operation::gather: return fmt::format("{}, root {}", type, call.detail);
    case Operation::all_gather: return fmt::format("{}, all ranks", type);
    case Operation::all_to_all:
      return fmt::format("{}, {}", type,
                         call.detail ? "equal blocks" : "blocks of their own sizes");
    case Operation::barrier: return "no tensor";
  }
  return "unknown";
}

}  // namespace

std::string_view to_string(Operation operation) {
  switch (operation) {
    case Operation::all_reduce: return "all_reduce";
    case Operation::reduce_scatter: return "reduce_scatter";
    case Operation::all_gather: return "all_gather";
    case Operation::broadcast: return "broadcast";
    case Operation::gather: return "gather";
    case Operation::barrier: return "barrier";
    case Operation::all_to_all: return "all_to_all";
  }
  return "an unknown operation";
}

std::string Call::describe() const {
  return fmt::format("{} with {} elements ({})", to_string(operation), elements, form_of(*this));
}

}  // namespace trireme::comm
