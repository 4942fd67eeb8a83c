// The rules between the stages of a pipeline.
#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/pipeline/stage.h>
#include <algorithm>

namespace trireme::data {
namespace {

class StageRules {
 public:
  StageRules(std::string_view key, const Stages& stages, SampleForm first)
      : key_(key), stages_(stages), form_(first) {}

  SampleForm check() {
    for (size_t i = 0; i < stages_.size(); ++i) {
      const StageForm& stage = *stages_[i].form;
      check_twice(stage);
      check_of_index(stage);
      if (stage.kind == StageKind::order) continue;
      check_behind_batch(stage);
      if (stage.name == "cache" && random_)
        refuse(fmt::format("cache stands behind {}, which is random: each epoch would get the "
                           "same numbers",
                           random_->name),
               fmt::format("cache in front of {}", random_->name));
      check_form(stage);
      if (!stage.keeps_form) form_ = stage.gives;
      before_ = &stage;
      if (stage.is_random && !random_) random_ = &stage;
      if (stage.name == "filter") filter_ = &stage;
      if (stage.kind == StageKind::mix || stage.kind == StageKind::pad) batch_ = &stage;
    }
    check_pack();
    return form_;
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& remedy) const {
    throw Error(ErrorCode::invalid_argument, "data", fmt::format("{}: {}", key_, what), remedy);
  }

  void check_twice(const StageForm& stage) const {
    for (const std::string_view name : {"pack", "pad", "bucket", "cache"})
      if (stage.name == name &&
          std::ranges::count_if(stages_, [&](const Stage& s) { return s.form == &stage; }) > 1)
        refuse(fmt::format("there are two stages {}", name), "one of them");
  }

  void check_of_index(const StageForm& stage) const {
    if (!filter_ || stage.kind == StageKind::sample || stage.kind == StageKind::mix ||
        stage.kind == StageKind::pad)
      return;
    refuse(fmt::format("{} stands behind filter, and which samples a filter keeps is not known "
                       "from the index",
                       stage.name),
           fmt::format("{} in front of filter", stage.name));
  }

  void check_behind_batch(const StageForm& stage) const {
    if (!batch_) return;
    const bool pads = batch_->kind == StageKind::pad || stage.kind == StageKind::pad;
    if (stage.kind == StageKind::mix && !pads) return;
    refuse(fmt::format("{} stands behind {}, which {} whole batches", stage.name, batch_->name,
                       batch_->kind == StageKind::pad ? "pads" : "mixes"),
           batch_->kind == StageKind::pad && stage.kind == StageKind::mix
               ? fmt::format("one of {} and {}", batch_->name, stage.name)
               : fmt::format("{} in front of {}", stage.name, batch_->name));
  }

  void check_form(const StageForm& stage) const {
    if (stage.takes == form_ || (stage.keeps_form && form_ == SampleForm::tensors)) return;
    refuse(
        fmt::format(
            "{} takes {}, but gets {} {}", stage.name, to_string(stage.takes), to_string(form_),
            before_ ? fmt::format("from {}", before_->name) : std::string("from the data set")),
        form_ == SampleForm::record && stage.takes == SampleForm::image
            ? fmt::format("decode | {}", stage.name)
        : stage.takes == SampleForm::record
            ? fmt::format("{} as the first stage, and no other one that takes records", stage.name)
        : form_ == SampleForm::image ? fmt::format("normalise | {}", stage.name)
                                     : fmt::format("{} earlier", stage.name));
  }

  // A pack is made of whole documents, as their index knows them.
  void check_pack() const {
    if (!find_stage(stages_, "pack")) return;
    bool is_packed = false;
    for (const Stage& each : stages_) {
      const std::string_view name = each.form->name;
      if (name == "pack") {
        is_packed = true;
      } else if (name == "bucket") {
        refuse("bucket stands beside pack, and packs have one length", "one of the two");
      } else if (each.form->kind != StageKind::order) {
        refuse(fmt::format("{} stands beside pack, which takes documents as their files have "
                           "them, and gives samples of one length",
                           name),
               "pack, take and repeat alone");
      } else if (name == "repeat" && !is_packed) {
        refuse("repeat stands in front of pack", "pack in front of repeat");
      }
    }
  }

  std::string_view key_;
  const Stages& stages_;
  SampleForm form_;
  const StageForm *before_ = nullptr, *batch_ = nullptr, *random_ = nullptr, *filter_ = nullptr;
};

}  // namespace

SampleForm check_forms(std::string_view key, const Stages& stages, SampleForm first) {
  return StageRules(key, stages, first).check();
}

}  // namespace trireme::data
