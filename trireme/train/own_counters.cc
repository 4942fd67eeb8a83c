#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/train/own_counters.h>
#include <type_traits>

namespace trireme {
namespace {

using Plateau = torch::optim::ReduceLROnPlateauScheduler;

// The member is protected, and a schedule has no other state than it and the learning rates.
struct StepCount : torch::optim::LRScheduler {
  static unsigned& of(torch::optim::LRScheduler& schedule) {
    return schedule.*(&StepCount::step_count_);
  }
};

// LibTorch gives no access to the state of a Plateau, and without it a resumed run would have
// other learning rates. An explicit instantiation may name private members ([temp.spec.general]).
template <typename Tag, typename Tag::Type member>
struct Opened {
  friend typename Tag::Type member_of(Tag) { return member; }
};
struct BestLoss {
  using Type = float Plateau::*;
  friend Type member_of(BestLoss);
};
struct LossesSeen {
  using Type = int Plateau::*;
  friend Type member_of(LossesSeen);
};
struct BadLosses {
  using Type = int Plateau::*;
  friend Type member_of(BadLosses);
};
struct StepsToWait {
  using Type = int Plateau::*;
  friend Type member_of(StepsToWait);
};
template struct Opened<BestLoss, &Plateau::best>;
template struct Opened<LossesSeen, &Plateau::last_epoch>;
template struct Opened<BadLosses, &Plateau::num_bad_epochs>;
template struct Opened<StepsToWait, &Plateau::cooldown_counter>;

// As text, because JSON has no infinity, which is the best loss at first.
template <typename T>
Json text_of(T value) {
  return fmt::format("{}", value);
}
template <typename T>
T number_in(const Json& text) {
  const auto& digits = text.get_ref<const std::string&>();
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(std::stoll(digits));
  else
    return static_cast<T>(std::stod(digits));
}

constexpr const char* kSchedules = "schedules";
constexpr const char* kPlateaus = "schedules_of_losses";
constexpr const char* kNumbers = "numbers";

}  // namespace

void require_as_many(const char* what, size_t in_checkpoint, size_t in_programme) {
  if (in_checkpoint != in_programme)
    throw Error(ErrorCode::invalid_argument, "train",
                fmt::format("the checkpoint has {} {}, and this programme includes {}",
                            in_checkpoint, what, in_programme),
                "the same calls of Checkpoint::include(), or another folder");
}

void OwnCounters::add_number(const std::string& name, Number number) {
  if (!numbers_.emplace(name, number).second)
    throw Error(ErrorCode::invalid_argument, "train",
                fmt::format("Checkpoint::include() was given two numbers '{}'", name),
                "another name for one of them");
}

void OwnCounters::show(Json& loop) const {
  Json counts = Json::array(), plateaus = Json::array(), numbers = Json::object();
  for (auto* const schedule : schedules_) counts.push_back(StepCount::of(*schedule));
  for (const Plateau* const each : plateaus_)
    plateaus.push_back({{"best", text_of(each->*member_of(BestLoss()))},
                        {"seen", each->*member_of(LossesSeen())},
                        {"bad", each->*member_of(BadLosses())},
                        {"wait", each->*member_of(StepsToWait())}});
  for (const auto& [name, number] : numbers_)
    numbers[name] = std::visit([](const auto* value) { return text_of(*value); }, number);
  loop[kSchedules] = std::move(counts);
  loop[kPlateaus] = std::move(plateaus);
  loop[kNumbers] = std::move(numbers);
}

// Checkpoints of before there were schedules of losses and numbers have no keys for them.
void OwnCounters::check(const Json& loop) const {
  require_as_many(kSchedules, loop.at(kSchedules).size(), schedules_.size());
  require_as_many("ReduceLROnPlateauSchedulers", loop.value(kPlateaus, Json::array()).size(),
                  plateaus_.size());
  const Json saved = loop.value(kNumbers, Json::object());
  for (const auto& [name, number] : numbers_)
    if (!saved.contains(name))
      throw Error(
          ErrorCode::invalid_argument, "train",
          fmt::format("the checkpoint has no number '{}', which this programme includes", name),
          "the same calls of Checkpoint::include(), or another folder");
  require_as_many("numbers", saved.size(), numbers_.size());
}

void OwnCounters::take(const Json& loop) const {
  for (size_t i = 0; i < schedules_.size(); ++i)
    StepCount::of(*schedules_[i]) = loop.at(kSchedules)[i].get<unsigned>();
  for (size_t i = 0; i < plateaus_.size(); ++i) {
    Plateau& each = *plateaus_[i];
    const Json& saved = loop.at(kPlateaus)[i];
    each.*member_of(BestLoss()) = number_in<float>(saved.at("best"));
    each.*member_of(LossesSeen()) = saved.at("seen").get<int>();
    each.*member_of(BadLosses()) = saved.at("bad").get<int>();
    each.*member_of(StepsToWait()) = saved.at("wait").get<int>();
  }
  for (const auto& [name, number] : numbers_)
    std::visit(
        [&](auto* value) {
          *value = number_in<std::remove_pointer_t<decltype(value)>>(loop.at(kNumbers).at(name));
        },
        number);
}

}  // namespace trireme
