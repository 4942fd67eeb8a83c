#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <trireme/base/hash.h>
#include <trireme/base/log.h>
#include <trireme/capi/handles.h>
#include <trireme/capi/step_checks.h>
#include <trireme/comm/world.h>
#include <trireme/parallel/finite_gradient.h>
#include <trireme/train/state_transfer.h>
#include <algorithm>
#include <utility>

namespace trireme::capi {
namespace {

uint64_t hash_of(std::string_view text) {
  uint64_t value = 1;
  for (const char c : text) value = mix64(value, static_cast<unsigned char>(c));
  return value;
}

constexpr uint64_t kAsks = 0xa5c5;
// The value is one that the caller has told.
const char* remedy_for(std::string_view name) {
  return name == "learning rate" || name == "lr"
             ? "the same schedules on all ranks. One that looks at a loss needs the mean over all "
               "ranks (trireme_all_reduce)"
             : "the same value on all ranks";
}

}  // namespace

StepChecks::StepChecks(std::shared_ptr<OwnLoop> loop, const std::vector<NamedTensor>& parameters)
    : loop_(std::move(loop)),
      parameters_(parameters),
      number_(loop_->engines++),
      before_leave_(std::make_shared<const std::function<void()>>([this] { tell_at_the_end(); })) {
  loop_->before_leave.emplace_back(before_leave_);
}

StepChecks::~StepChecks() { tell_at_the_end(); }

void StepChecks::bind(std::shared_ptr<Group> group) {
  group_ = std::move(group);
  form_.emplace(group_->size(), std::vector<NamedTensor>());
  values_ = at::zeros({form_->size()}, at::kDouble);
  looks_ = 0;
  end_step(/*in_whole=*/false);
}

void StepChecks::unbind() {
  end_step(/*in_whole=*/false);
  group_.reset();
}

void StepChecks::check_every(int64_t steps) {
  if (steps < 0)
    throw refused(fmt::format("a check in each {} steps", steps), "1 or more, or 0 for none");
  check_every_ = steps;
}

void StepChecks::set_fact(const std::string& name, const char* value) {
  if (name.empty()) throw refused("a fact without a name", "a name such as \"learning rate\"");
  if (value)
    stated_[name] = hash_of(value);
  else
    stated_.erase(name);
  names_of_stated_ = 0;
  for (const auto& [each, hash] : stated_)
    names_of_stated_ = mix64(names_of_stated_, hash_of(each));
}

void StepChecks::count_from_newest_load() {
  if (std::exchange(loads_, loop_->loads()) == loop_->loads()) return;
  steps_ = loop_->origin();
  looks_ = 0;
}

std::vector<OwnFact> StepChecks::facts() const {
  std::vector<OwnFact> all{
      {"number of steps between checks", static_cast<uint64_t>(check_every_),
       "the same number on all ranks"},
      {"answer to gradients that are NaN", skips_nonfinite_ ? 1U : 0U, "the same on all ranks"},
      {"size of the global batch", static_cast<uint64_t>(loop_->batch.of_all),
       "a share of the same global batch on all ranks, in each step or never"},
      // The others are compared one by one, and so need the same list.
      {"list of stated facts", names_of_stated_, "facts of the same names on all ranks"}};
  for (const auto& [name, hash] : stated_) all.push_back({name.c_str(), hash, remedy_for(name)});
  return all;
}

// It is not 0.
uint64_t StepChecks::digest_now() {
  uint64_t value = mix64(1, static_cast<uint64_t>(step()));
  for (const OwnFact& fact : facts()) value = mix64(value, fact.value);
  const bool asks = std::exchange(is_asked_, false);
  // A loop may ask in each step, because its updates are moves.
  const bool is_new = asks && !was_asked_;
  was_asked_ = asks;
  if (check_every_ == 0) return std::max<uint64_t>(1, value);
  if (looks_ < 2 || looks_ % check_every_ == 0 || is_new)
    value = mix64(value, digest_of(parameters_));
  // If some ranks ask and others do not, all of them look.
  return std::max<uint64_t>(1, asks ? mix64(value, kAsks) : value);
}

void StepChecks::write(const Contribution& mine) {
  form_->write(mine, group_->rank(), {}, /*gradients_are_finite=*/true, values_);
}

void StepChecks::send(int64_t samples) {
  count_from_newest_load();
  mine_.samples = samples;
  if (group_->size() == 1) return;
  if (mine_.change.change == Change::none) mine_.digest = digest_now();
  write(mine_);
  facts_on_way_ = group_->all_reduce_async(values_);
  facts_on_way_->start();
}

int64_t StepChecks::samples_of_all() {
  if (group_->size() == 1) return mine_.samples;
  // A step that ends by an error here may begin anew.
  WorkPtr on_way = std::exchange(facts_on_way_, nullptr);
  on_way->wait();
  const int64_t samples = samples_without_mistakes();
  facts_on_way_ = std::move(on_way);
  return samples;
}

int64_t StepChecks::samples_without_mistakes() {
  try {
    return form_->read(values_).outcome.samples;
  } catch (const ErrorOfAllRanks&) {
    if (const int rank = form_->reported(values_).rank; rank >= 0) throw_told(rank);
    refuse_differences(*group_, place(), facts());
    refuse_other_parameters(*group_, place(), parameters_);
  }
  // A rank had asked for this comparison, and nothing differs.
  mine_.digest = 0;
  write(mine_);
  group_->all_reduce(values_);
  return form_->read(values_).outcome.samples;
}

void StepChecks::refuse(const std::string& what, const std::string& remedy) {
  if (!group_) throw refused(what, remedy);
  count_from_newest_load();
  refusal_ = {fmt::format("rank {}, step {}: {}", group_->rank(), step(), what), remedy};
  const Error own = refused(refusal_.what, remedy);
  if (group_->size() == 1 || has_sent() || loop_->has_left) throw own;
  mine_.change = {Change::told, 0};
  try {
    send(1);
    samples_of_all();
  } catch (const ErrorOfAllRanks&) {
    throw;
  } catch (const Error&) {  // The others were somewhere else.
  }
  throw own;
}

void StepChecks::throw_told(int rank) {
  const Json told = broadcast_value(*group_, Json::array({refusal_.what, refusal_.remedy}), rank);
  throw ErrorOfAllRanks(refused(told[0].get<std::string>(), told[1].get<std::string>()));
}

int StepChecks::look_for_nonfinite(const std::vector<std::optional<at::Tensor>>& own) {
  at::Tensor first = at::full({1}, -1, at::kLong);
  for (size_t i = 0; i < own.size() && first.item<int64_t>() < 0; ++i)
    if (own[i] && !is_finite_gradient(*own[i])) first.fill_(static_cast<int64_t>(i));
  const at::Tensor all = at::zeros({group_->size()}, at::kLong);
  group_->all_gather(first, all);
  const auto* const found = all.const_data_ptr<int64_t>();
  const int rank = static_cast<int>(
      std::find_if(found, found + group_->size(), [](int64_t p) { return p >= 0; }) - found);
  const bool is_of_rank = rank < group_->size();
  const std::string what =
      is_of_rank ? fmt::format("step {}: the gradient of {} is NaN or infinite on rank {}", step(),
                               parameters_[static_cast<size_t>(found[rank])].name, rank)
                 : fmt::format(
                       "step {}: the mean of the gradients is NaN or infinite, and the "
                       "gradients of no rank are",
                       step());
  if (!skips_nonfinite_)
    throw ErrorOfAllRanks(
        ErrorCode::internal, "capi", what,
        is_of_rank
            ? "a look at that rank's loss and data, or a smaller learning rate. A loop that "
              "is to go on without the step says so on all ranks "
              "(trireme_gradients_skip_nonfinite, or nonfinite=\"skip\" in Python)"
            : "smaller gradients, or gradients of a type with a larger range");
  if (group_->rank() == 0) log_warning("{}: the step is to be skipped", what);
  return is_of_rank ? rank : 0;
}

void StepChecks::end_step(bool in_whole) {
  facts_on_way_.reset();
  mine_ = {};
  if (!in_whole) return;
  ++steps_;
  ++looks_;
}

void StepChecks::tell_at_the_end() {
  if (!group_ || group_->size() == 1 || check_every_ == 0 || loop_->has_left) return;
  loop_->facts_at_the_end[fmt::format("gradients {}", number_)] =
      parameters_at_the_end(parameters_, steps_, /*alike_in=*/0);
}

}  // namespace trireme::capi
