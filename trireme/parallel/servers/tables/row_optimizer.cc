#include <trireme/parallel/servers/tables/row_optimizer.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <array>
#include <cmath>

namespace trireme {
namespace {

constexpr std::array<std::pair<RowRule, std::string_view>, 5> kRowRules = {{
    {RowRule::sgd, "sgd"},
    {RowRule::adagrad, "adagrad"},
    {RowRule::row_adagrad, "row_adagrad"},
    {RowRule::adam, "adam"},
    {RowRule::ftrl, "ftrl"},
}};

void require_option(bool holds, std::string_view option, double value, std::string_view rule) {
  if (!holds)
    throw Error(
        ErrorCode::invalid_argument, "parallel",
        fmt::format("{} of a table's optimizer is {}, but must be {}", option, value, rule));
}

}  // namespace

std::string_view to_string(RowRule rule) { return kRowRules[static_cast<size_t>(rule)].second; }

RowRule row_rule_from_string(std::string_view name) {
  for (const auto& [rule, known] : kRowRules)
    if (known == name) return rule;
  throw Error(ErrorCode::invalid_argument, "parallel",
              fmt::format("\"{}\" is no optimizer of a table", name),
              "sgd, adagrad, row_adagrad, adam or ftrl");
}

void check(const RowOptimizer& o) {
  const auto is_fraction = [](double value) { return value >= 0 && value < 1; };
  require_option(o.lr > 0 && std::isfinite(o.lr), "lr", o.lr, "above 0");
  require_option(o.eps >= 0, "eps", o.eps, "at least 0");
  require_option(is_fraction(o.beta1), "beta1", o.beta1, "at least 0 and below 1");
  require_option(is_fraction(o.beta2), "beta2", o.beta2, "at least 0 and below 1");
  require_option(o.first_sum >= 0, "first_sum", o.first_sum, "at least 0");
  require_option(o.beta >= 0, "beta", o.beta, "at least 0");
  require_option(o.l1 >= 0, "l1", o.l1, "at least 0");
  require_option(o.l2 >= 0, "l2", o.l2, "at least 0");
  // Algorithm 1 divides by (beta + sqrt(n)) / alpha + l2, and n is 0 at first.
  if (o.rule == RowRule::ftrl)
    require_option(o.beta + o.l2 > 0, "beta", o.beta, "above 0 if l2 is 0");
}

std::string describe(const RowOptimizer& o) {
  const std::string_view name = to_string(o.rule);
  switch (o.rule) {
    case RowRule::sgd: return fmt::format("{}, lr {}", name, o.lr);
    case RowRule::adagrad:
    case RowRule::row_adagrad:
      return fmt::format("{}, lr {}, eps {}, first_sum {}", name, o.lr, o.eps, o.first_sum);
    case RowRule::adam:
      return fmt::format("{}, lr {}, betas {} {}, eps {}", name, o.lr, o.beta1, o.beta2, o.eps);
    case RowRule::ftrl:
      return fmt::format("{}, lr {}, beta {}, l1 {}, l2 {}", name, o.lr, o.beta, o.l1, o.l2);
  }
  return {};
}

namespace servers {

std::vector<RowState> state_of_row(RowRule rule, int64_t width) {
  switch (rule) {
    case RowRule::sgd: return {};
    case RowRule::adagrad: return {{"sum", width}};
    case RowRule::row_adagrad: return {{"sum", 1}};
    case RowRule::adam: return {{"exp_avg", width}, {"exp_avg_sq", width}, {"step", 1}};
    case RowRule::ftrl: return {{"z", width}, {"n", width}};
  }
  return {};
}

int64_t floats_of_row(RowRule rule, int64_t width) {
  int64_t floats = width;
  for (const RowState& part : state_of_row(rule, width)) floats += part.floats;
  return floats;
}

}  // namespace servers
}  // namespace trireme
