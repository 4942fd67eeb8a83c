// The state of a training in another language: what an elastic job goes on from, and what
// checkpoints hold.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/log.h>
#include <trireme/capi/handles.h>
#include <trireme/checkpoint/file_system.h>
#include <trireme/checkpoint/writer.h>
#include <trireme/comm/dtype.h>
#include <trireme/membership/arrival.h>
#include <trireme/train/lost_peer.h>
#include <trireme/train/saver.h>
#include <trireme/train/state_transfer.h>
#include <algorithm>
#include <map>
#include <optional>

using trireme::Error;
using trireme::ErrorCode;
using trireme::Json;
using trireme::Phase;
using trireme::StateKind;
using namespace trireme::capi;

namespace {

StateKind kind_of(trireme_kind kind) {
  switch (kind) {
    case TRIREME_PARAMETER: return StateKind::parameter;
    case TRIREME_BUFFER: return StateKind::buffer;
    case TRIREME_OPTIMIZER: return StateKind::optimizer;
    case TRIREME_OTHER: return StateKind::common;
  }
  throw refused(fmt::format("there is no kind {}", static_cast<int>(kind)),
                "TRIREME_PARAMETER, TRIREME_BUFFER, TRIREME_OPTIMIZER or TRIREME_OTHER");
}

at::Tensor empty_of(const trireme::plan::TensorSpec& spec) {
  return at::zeros(spec.shape, at::TensorOptions().dtype(trireme::to_torch(spec.dtype)));
}

}  // namespace

// The Saver sees the state as an engine that makes no steps.
struct trireme_state : Bound, trireme::Engine {
  trireme_state(trireme_world& world, const char* folder, int64_t every)
      : world_(world), everything_(world.bound), folder_(folder ? folder : ""), every_(every) {
    loop_->require_not_left("trireme_state_new");
    if (every < 0) throw refused(fmt::format("a save in each {} steps", every), "0 or more");
    if (every > 0 && folder_.empty()) throw refused("saves without a folder", "a folder");
    bind();
    everything_->push_back(this);
    ++loop_->meetings;
  }
  ~trireme_state() override {
    --loop_->meetings;
    std::erase(*everything_, static_cast<Bound*>(this));
  }

  void bind() override {
    saver_.reset();
    group_ = world_.world.make_groups(1)[0];
    if (!first()) writer_.reset();
    if (first() && !writer_ && !folder_.empty())
      writer_.emplace(trireme::checkpoint::Folder(folder_, {}, trireme::checkpoint::disk(),
                                                  trireme::Milliseconds(5000)),
                      trireme::checkpoint::WriterOptions{
                          .mark = [this](int64_t step) { return world_.world.mark_save(step); }});
    saver_.emplace(writer_ ? &*writer_ : nullptr, std::nullopt, trireme::RunFacts{}, *group_);
    has_told_first_step_ = false;
  }
  void unbind() override {
    if (writer_) writer_->expect_no_more();
    saver_.reset();
    writer_.reset();
    group_.reset();
  }

  void hold(const std::string& name, StateKind kind, const at::Tensor& tensor) {
    const auto found = entries_.find(name);
    if (found != entries_.end()) require_form(name, found->second.tensor, tensor);
    entries_.insert_or_assign(name, Entry{kind, tensor, /*is_held=*/true});
  }
  void note(const std::string& text) {
    // Checkpoints are JSON.
    try {
      (void)Json(text).dump();
    } catch (const nlohmann::json::exception&) {
      throw refused("the note is not UTF-8", "text in UTF-8, such as JSON");
    }
    note_ = text;
  }
  const char* read_note() const { return note_.c_str(); }
  void read(const std::string& name, const at::Tensor& tensor) const {
    const auto found = entries_.find(name);
    if (found == entries_.end())
      throw Error(ErrorCode::not_found, "capi", fmt::format("the state has no tensor {}", name),
                  "the name of a tensor that was held when the state was committed");
    require_form(name, found->second.tensor, tensor);
    tensor.copy_(found->second.tensor);
  }

  int64_t begin(trireme_status status) {
    require_group();
    trireme::World& world = world_.world;
    std::string reason;
    bool is_bound = !std::exchange(has_begun_, true);
    if (!is_bound && status != TRIREME_OK && status != TRIREME_MEET_AGAIN) {
      const Error error(code_of(status), "capi", "");
      const std::string message = last_error();
      if (!world.is_elastic() || status == TRIREME_STOPPED || status == TRIREME_DISMISSED ||
          !is_of_lost_peer(error, world))
        throw Outcome{status, message};
      give_up(message);
      reason = message;
    } else {
      in_vain_ = 0;
      if (!is_bound && !world.is_elastic()) is_bound = true;
    }
    for (;; is_bound = false) {
      try {
        if (!is_bound) {
          if (!world.regroup(copy_.step, reason))
            throw Outcome{TRIREME_DISMISSED, "the job goes on without this process"};
          reason.clear();
          // Newcomers know nothing of gradients that are gone.
          loop_->facts_at_the_end.clear();
          for (Bound* const each : *everything_) each->bind();
        }
        take_newest();
        return step_;
      } catch (const Outcome&) {
        throw;
      } catch (const std::exception& error) {
        if (!world.is_elastic() ||
            dynamic_cast<const trireme::membership::NoGeneration*>(&error) ||
            !is_of_lost_peer(error, world))
          throw;
        reason = trireme::parts_of(error).what;
        give_up(reason);
      }
    }
  }

  void commit(bool wants_stop) {
    require_group();
    if (!has_begun_) throw refused("a commit before the state has begun", "trireme_state_begin");
    trireme::World& world = world_.world;
    const at::Tensor wishes = at::zeros({2});
    wishes[0] = wants_stop ? 1 : 0;
    wishes[1] = world.regroup_wanted() ? 1 : 0;
    if (group_->size() > 1) group_->all_reduce(wishes);
    const bool stops = wishes[0].item<float>() > 0, regroups = wishes[1].item<float>() > 0;
    ++step_;
    loop_->end_step(teller_, trireme::OwnLoop::Teller::checkpoint, step_);
    const bool is_due = every_ > 0 && step_ % every_ == 0;
    if ((is_due || stops) && !folder_.empty()) {
      loop_->enter(Phase::checkpoint);
      trireme::Progress progress;
      progress.step = step_;
      saver_->save(state(), progress);
    }
    if (stops) throw Outcome{TRIREME_STOPPED, fmt::format("asked to stop after step {}", step_)};
    loop_->enter(Phase::data);
    if (!world.is_elastic()) return;
    keep();
    if (!std::exchange(has_told_first_step_, true)) world.tell_first_step(step_);
    if (regroups)
      throw Outcome{TRIREME_MEET_AGAIN,
                    fmt::format("the workers meet again after step {}", step_)};
  }

  void end() {
    require_group();
    group_->barrier();
    if (writer_) writer_->wait();
  }

  // Engine.
  trireme::StepOutcome step(const trireme::StepRequest&) override { throw no_step(); }
  at::Tensor evaluate(const trireme::Batch&) override { throw no_step(); }
  trireme::DataShare data_share() const override { return {group_->rank(), group_->size()}; }
  void prepare_to_read() override {}
  trireme::EngineState state() override {
    trireme::EngineState all;
    for (const auto& [name, entry] : entries_)
      all.tensors.push_back(trireme::whole(name, entry.tensor, entry.kind));
    all.counters["note"] = note_;
    return all;
  }
  void begin_load(const trireme::IncomingState& incoming) override {
    if (!incoming.counters.contains("note"))
      throw Error(ErrorCode::invalid_argument, "capi",
                  "the checkpoint was not written by a trireme_state", "another folder");
    note_ = incoming.counters.at("note");
    // Tensors that nobody holds yet: an optimizer may make its own later.
    for (const trireme::plan::TensorSpec& spec : incoming.tensors) {
      const bool is_other = spec.name.starts_with(kPrefix);
      const std::string name = is_other ? spec.name.substr(kPrefix.size()) : spec.name;
      if (!entries_.contains(name))
        entries_[name] = {is_other ? StateKind::common : StateKind::optimizer, empty_of(spec),
                          /*is_held=*/false};
    }
    if (incoming.model_is_new)
      for (const auto& [name, entry] : entries_)
        if (trireme::is_of_model(entry.kind)) group_->broadcast(entry.tensor, 0);
  }
  void end_load() override {}
  std::vector<double> rates() const override { return {}; }
  void set_rates(std::span<const double>) override {}
  const trireme::plan::EnginePlan& plan() const override { return no_plan_; }

 private:
  struct Entry {
    StateKind kind = StateKind::common;
    at::Tensor tensor;
    bool is_held = true;  // The memory is the caller's.
  };
  // Names in a file of tensors of the kind TRIREME_OTHER.
  inline static const std::string kPrefix = "engine/";

  static Error no_step() { return Error(ErrorCode::internal, "capi", "a state makes no steps"); }
  static void require_form(const std::string& name, const at::Tensor& there,
                           const at::Tensor& here) {
    if (there.sizes() != here.sizes() || there.scalar_type() != here.scalar_type())
      throw refused(
          fmt::format("{} is {} in the state, and {} here", name, form_of(there), form_of(here)),
          "a tensor of the same form");
  }
  void require_group() const {
    if (!group_)
      throw refused("the world of this state has ended", "a state of a world that lives");
    loop_->require_not_left("a commit");
  }
  bool first() const { return group_->rank() == 0; }

  // The number of generations in a row without a commit is bounded.
  void give_up(const std::string& reason) {
    in_vain_ = copy_.step > before_ ? 0 : in_vain_ + 1;
    before_ = copy_.step;
    if (in_vain_ == trireme::kGenerationsInVain)
      throw Error(
          ErrorCode::peer_lost, "capi",
          fmt::format("{} generations in a row ended without a step: {}", in_vain_, reason),
          "the messages of the lost workers");
    trireme::log_warning("step {} abandoned: {}", step_ + 1, reason);
  }

  void keep() {
    std::erase_if(copy_.entries, [&](const auto& each) { return !entries_.contains(each.first); });
    for (const auto& [name, entry] : entries_) {
      const auto found = copy_.entries.find(name);
      if (found == copy_.entries.end())
        copy_.entries[name] = {entry.kind, entry.tensor.clone(), false};
      else
        found->second.tensor.copy_(entry.tensor);
    }
    copy_.note = note_;
    copy_.step = step_;
  }
  // An entry that was held since the commit, and is not part of it, goes.
  void put_back() {
    std::erase_if(entries_, [&](const auto& each) { return !copy_.entries.contains(each.first); });
    for (const auto& [name, entry] : copy_.entries) entries_.at(name).tensor.copy_(entry.tensor);
    note_ = copy_.note;
    step_ = copy_.step;
  }

  // COLLECTIVE.
  void take_newest() {
    trireme::World& world = world_.world;
    const int64_t newest = world.is_elastic() ? world.step_of_generation() : -1;
    if (newest < 0) {
      const auto restored = saver_->restore(*this, {});
      step_ = restored ? restored->progress.step : 0;
      if (!restored) take_first();
    } else {
      if (first()) put_back();
      take_first();
    }
    loop_->go_on_from(step_);
    loop_->enter(Phase::data);
    if (world.is_elastic()) keep();
  }

  // COLLECTIVE. Everything that rank 0 has.
  void take_first() {
    Json list = Json::array();
    for (const auto& [name, entry] : entries_)
      list.push_back({name, static_cast<int>(entry.kind), entry.tensor.sizes().vec(),
                      trireme::plan::to_string(trireme::to_plan(entry.tensor.scalar_type()))});
    const Json told =
        broadcast_value(*group_, {{"tensors", list}, {"note", note_}, {"step", step_}});
    std::map<std::string, Entry> now;
    for (const Json& each : told["tensors"]) {
      const std::string name = each[0];
      const auto found = entries_.find(name);
      const trireme::plan::TensorSpec spec{
          name, each[2].get<std::vector<int64_t>>(),
          trireme::plan::dtype_from_string(each[3].get<std::string>())};
      Entry entry{static_cast<StateKind>(each[1].get<int>()), empty_of(spec), false};
      if (found != entries_.end()) {
        require_form(name, entry.tensor, found->second.tensor);
        entry = found->second;
      }
      group_->broadcast(entry.tensor, 0);
      now.emplace(name, std::move(entry));
    }
    entries_ = std::move(now);
    note_ = told["note"];
    step_ = told["step"];
  }

  trireme_world& world_;
  const std::shared_ptr<std::vector<Bound*>> everything_;
  const std::shared_ptr<trireme::OwnLoop> loop_ = world_.world.own_loop();
  const std::shared_ptr<const void> teller_ = std::make_shared<int>();
  const std::string folder_;
  const int64_t every_;
  std::shared_ptr<trireme::Group> group_;
  std::optional<trireme::checkpoint::Writer> writer_;  // Only rank 0 has it.
  std::optional<trireme::Saver> saver_;
  trireme::plan::EnginePlan no_plan_;
  std::map<std::string, Entry> entries_;  // In the same order on every rank.
  std::string note_;
  int64_t step_ = 0;
  bool has_begun_ = false, has_told_first_step_ = false;
  int in_vain_ = 0;
  int64_t before_ = -1;
  // The newest commit, in memory.
  struct {
    int64_t step = -1;
    std::map<std::string, Entry> entries;
    std::string note;
  } copy_;
};

extern "C" {

trireme_status trireme_state_new(trireme_world* world, const char* folder, int64_t every,
                                 trireme_state** state) {
  return guarded([&] {
    given(state, "the place for the state") = nullptr;
    *state = new trireme_state(given(world, "the world"), folder, every);
  });
}
trireme_status trireme_state_hold(trireme_state* state, const char* name, trireme_kind kind,
                                  const trireme_tensor* tensor) {
  return guarded([&] {
    const std::string text = &given(name, "the name");
    given(state, "the state").hold(text, kind_of(kind), view_of(tensor, text));
  });
}
trireme_status trireme_state_note(trireme_state* state, const char* note) {
  return guarded([&] { given(state, "the state").note(&given(note, "the note")); });
}
trireme_status trireme_state_begin(trireme_state* state, trireme_status status, int64_t* step) {
  return guarded([&] {
    const int64_t done = given(state, "the state").begin(status);
    if (step) *step = done;
  });
}
trireme_status trireme_state_commit(trireme_state* state, int wants_stop) {
  return guarded([&] { given(state, "the state").commit(wants_stop != 0); });
}
trireme_status trireme_state_end(trireme_state* state) {
  return guarded([&] { given(state, "the state").end(); });
}
const char* trireme_state_read_note(const trireme_state* state) {
  return state ? state->read_note() : "";
}
trireme_status trireme_state_read(trireme_state* state, const char* name,
                                  const trireme_tensor* tensor) {
  return guarded([&] {
    const std::string text = &given(name, "the name");
    given(state, "the state").read(text, view_of(tensor, text));
  });
}
void trireme_state_free(trireme_state* state) { delete state; }

}  // extern "C"
