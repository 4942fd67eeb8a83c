#include <trireme/base/error.h>
#include <trireme/membership/roles.h>
#include <trireme/train/run_checkpoints.h>
#include <algorithm>

namespace trireme {
namespace {

constexpr Milliseconds kFolderTimeout{5000};
constexpr Milliseconds kPartsAfterAGeneration{30000};

}  // namespace

void RunCheckpoints::bind(Group& group, RunFacts facts, bool in_parts) {
  group_ = &group;
  if (!first()) writer_.reset();
  std::optional<PartsOfSaves> parts;
  if (wanted()) {
    if (first() && !writer_) writer_.emplace(open_folder(), writing());
    if (in_parts) parts = take_parts(options_.checkpoint.writers == "ranks");
  }
  checkpoint::Writer* const writer = writer_                     ? &*writer_
                                     : parts && parts->index > 0 ? &*part_writer_
                                                                 : nullptr;
  saver_.emplace(writer, std::move(parts), std::move(facts), group, let_all_write());
}

void RunCheckpoints::unbind() {
  // A lost worker may only show when all meet again.
  for (auto* const writer : {&writer_, &part_writer_})
    if (*writer)
      (*writer)->expect_no_more(world_.lost_a_worker() ? checkpoint::Writer::kAfterALostWorker
                                                       : kPartsAfterAGeneration);
  // With units this process may become a spare, and another one the first.
  if (world_.is_elastic() && world_.identity().elastic->unit > 1) writer_.reset();
  saver_.reset();
  group_ = nullptr;
}

bool RunCheckpoints::exist() {
  if (writer_) writer_->wait();
  const bool found = writer_ && checkpoint::has_checkpoints(writer_->folder().path());
  return broadcast_value(*group_, {{"found", found}})["found"];
}

void RunCheckpoints::begin_save(bool servers_write) {
  if (servers_write) wait_for_all();
  lost_ = lost_servers();
}

void RunCheckpoints::wait_for_all() {
  // Shorter than the time that the group waits for a rank.
  saver_->wait_for_all(world_.options().timeout / 4);
}

// Waits for the lock, because a rank 0 that was ended a moment ago may still exist. If another
// rank 0 came too late for this generation, it holds the folder and has newer state; it joins the
// next generation.
checkpoint::Folder RunCheckpoints::open_folder() {
  const CheckpointOptions& keep = options_.checkpoint;
  const checkpoint::RetentionOptions retention{keep.keep, keep.keep_every, keep.keep_best,
                                               best_by_};
  if (!world_.is_elastic() || world_.identity().generation == 0)
    return checkpoint::Folder(keep.dir, retention, disk_);
  try {
    return checkpoint::Folder(keep.dir, retention, disk_, kFolderTimeout);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    throw Error(ErrorCode::peer_lost, "train", brief(error), "nothing: the workers meet again");
  }
}

std::optional<PartsOfSaves> RunCheckpoints::take_parts(bool of_all_ranks) {
  auto parts = agree_on_parts(of_all_ranks, options_.checkpoint.dir, disk_, *group_);
  const bool has_one = parts && parts->index > 0;
  if (has_one && (!part_writer_ || part_writer_->path() != parts->folder))
    part_writer_.emplace(parts->folder, disk_, writing());
  return parts;
}

checkpoint::WriterOptions RunCheckpoints::writing() {
  // A copy in memory of state that is in files may be larger than memory.
  const bool may_copy = options_.memory.offload == "none";
  return {.background = options_.checkpoint.background && may_copy,
          .others_live = [this] { return !world_.lost_a_worker() && lost_servers() == lost_; },
          .mark = [this](int64_t step) { return world_.mark_save(step); },
          .copy_threads = has_host_to_itself(*group_) ? 2 : 1};
}

// So many processes of servers were lost. Those may have parts of a checkpoint.
int64_t RunCheckpoints::lost_servers() const {
  return std::ranges::count_if(world_.lost_tasks(), [](const membership::LostTask& lost) {
    return lost.who.task.role == membership::kServerRole;
  });
}

Saver::LetAllWrite RunCheckpoints::let_all_write() {
  if (!wanted()) return {};
  return [this] {
    auto parts = take_parts(/*of_all_ranks=*/true);
    checkpoint::Writer* const writer = first() ? &*writer_ : parts ? &*part_writer_ : nullptr;
    return std::pair(writer, std::move(parts));
  };
}

}  // namespace trireme
