// Saves that are interrupted anywhere, with every state of the disk that can follow, and saves
// whose operations fail.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <trireme/base/log.h>
#include <unistd.h>
#include <fstream>

#include "crash_state.h"
#include "folder_testing.h"

namespace trireme::checkpoint::crash_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Crash : public CheckpointFolder {
 protected:
  Crash() : CheckpointFolder(in_memory()) {
    set_log_level(LogLevel::error);
    Folder folder(runs_);
    for (const int step : {1, 2}) save(folder, step);
    fs::copy(runs_, before_, fs::copy_options::recursive);
    fs::remove(before_ / ".lock");
  }
  ~Crash() override { set_log_level(LogLevel::info); }

  // Returns a place in memory, because a disk would be slow with thousands of small files.
  static fs::path in_memory() {
    return ::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
  }

  // Returns the trace of a save of `step` with values from `start`.
  const std::vector<Operation>& traced_save(int64_t step, int start) {
    Folder folder(runs_, {.keep = 2}, files_);
    files_.trace.clear();
    save(folder, step, start);
    return files_.trace;
  }

  // Returns the trace of a save in two parts.
  const std::vector<Operation>& traced_save_in_parts(int64_t step) {
    Folder folder(runs_, {.keep = 2}, files_);
    files_.trace.clear();
    const OwnedTensor weight("w", {64}, plan::DType::float32, static_cast<int>(step)),
        moment("m", {64}, plan::DType::float32, 2);
    write_part(files_, runs_, step, {1, 2, "a"}, TensorFiles({}, {moment.view()}, 1).content());
    Manifest manifest;
    manifest.step = step;
    folder.save(manifest, TensorFiles({weight.view()}, {}).content(), {0, 2, "a"},
                [] { return false; });
    return files_.trace;
  }

  // Calls check(number of operations done) for the state after a crash behind each operation. The
  // operations that were not durable are all lost, are all there, have left their names but no
  // bytes, or are lost at random.
  void at_each_crash(const std::vector<Operation>& trace,
                     const std::function<void(size_t)>& check) {
    std::mt19937_64 random(5);
    for (size_t count = 0; count <= trace.size(); ++count) {
      std::vector<std::function<bool(size_t)>> choices = {
          [](size_t) { return false; }, [](size_t) { return true; },
          [&](size_t i) { return trace[i].kind != Operation::Kind::write; }};
      for (int i = 0; i < 12; ++i) choices.emplace_back([&](size_t) { return random() % 2 == 0; });
      for (const auto& survives : choices) {
        fs::remove_all(state_);
        fs::copy(before_, state_, fs::copy_options::recursive);
        crash_into(state_, runs_, trace, count, survives);
        check(count);
        if (HasFailure()) FAIL() << "after operation " << count << " of " << trace.size();
      }
    }
  }

  // Returns the position after the sync that makes the new checkpoint's name durable.
  size_t durable_at(const std::vector<Operation>& trace) const {
    for (size_t i = 0; i < trace.size(); ++i)
      if (trace[i].kind == Operation::Kind::sync_folder && trace[i].path == runs_) return i + 1;
    return trace.size() + 1;
  }

  // Runs through the trace of saving step 3. `check` gets the checkpoint that was found, and
  // whether the new one was durable.
  void at_each_crash_the_newest_is_whole(const std::vector<Operation>& trace,
                                         const std::function<void(const Saved&, bool)>& check) {
    const size_t durable = durable_at(trace);
    ASSERT_LE(durable, trace.size());
    at_each_crash(trace, [&](size_t count) {
      const auto found = newest_in(state_);
      ASSERT_TRUE(found);
      EXPECT_GE(found->manifest.step, count >= durable ? 3 : 2);
      EXPECT_EQ(first_weight(*found), static_cast<float>(found->manifest.step));
      check(*found, count >= durable);
    });
  }

  fs::path before_ = folder_ / "before", state_ = folder_ / "state";
  TracingFileSystem files_;
};

TEST_F(Crash, AnywhereInASaveLeavesTheNewestWholeCheckpointToFind) {
  at_each_crash_the_newest_is_whole(traced_save(3, 3), [&](const Saved&, bool is_durable) {
    // Nothing may be removed before its successor is durable.
    if (!is_durable) {
      EXPECT_EQ(open_checkpoint(state_ / "step-000000001").manifest.step, 1);
      EXPECT_EQ(open_checkpoint(state_ / "step-000000002").manifest.step, 2);
    }
  });
}

TEST_F(Crash, AnywhereInASaveOfTwoPartsLeavesTheNewestWholeCheckpointToFind) {
  at_each_crash_the_newest_is_whole(traced_save_in_parts(3), [&](const Saved& found, bool) {
    EXPECT_EQ(found.optimizer->tensors().size(), 1u);
    const Folder folder(state_);
    for (const std::string& name : names_in(state_))
      EXPECT_THAT(name, testing::AnyOf(".lock", testing::StartsWith("step-")));
  });
}

TEST_F(Crash, AnywhereInASaveLeavesAFolderThatARunCanContinueWith) {
  const auto trace = traced_save(3, 3);
  at_each_crash(trace, [&](size_t) {
    TracingFileSystem quick;  // It does not sync.
    Folder folder(state_, {}, quick);
    const int64_t step = newest_step(folder);
    EXPECT_GE(step, 2);
    save(folder, step + 1);
    EXPECT_EQ(newest_step(folder), step + 1);
    for (const std::string& name : names_in(state_))
      EXPECT_THAT(name, testing::AnyOf(".lock", testing::StartsWith("step-")));
  });
}

// Nothing of the folder is there before: neither its name nor those of the folders around it.
TEST_F(Crash, AnywhereInTheFirstSaveIntoANewFolderLeavesThatCheckpointOrNone) {
  runs_ = folder_ / "disk";
  fs::create_directory(runs_);
  fs::remove_all(before_);
  fs::create_directory(before_);
  const fs::path inside = fs::path("runs") / "digits" / "checkpoints";
  {
    Folder folder(runs_ / inside, {}, files_);
    save(folder, 1);
  }
  const std::vector<Operation> trace = files_.trace;
  size_t durable = trace.size() + 1;
  for (size_t i = 0; i < trace.size(); ++i)
    if (trace[i].kind == Operation::Kind::sync_folder && trace[i].path == runs_ / inside)
      durable = i + 1;
  ASSERT_LE(durable, trace.size());
  at_each_crash(trace, [&](size_t count) {
    const fs::path place = state_ / inside;
    if (count >= durable) {
      ASSERT_TRUE(has_checkpoints(place));
    }
    TracingFileSystem quick;
    Folder folder(place, {}, quick);
    const auto found = folder.newest();
    if (found) {
      EXPECT_EQ(found->manifest.step, 1);
      EXPECT_EQ(first_weight(*found), 1);
    }
    save(folder, found ? 2 : 1);
    EXPECT_EQ(newest_step(folder), found ? 2 : 1);
  });
}

TEST_F(Crash, WhileACheckpointOfTheSameStepIsReplacedLeavesTheOldOneOrTheNewOne) {
  const auto trace = traced_save(2, 70);
  at_each_crash(trace, [&](size_t count) {
    TracingFileSystem quick;
    Folder folder(state_, {}, quick);
    const auto found = folder.newest();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->manifest.step, 2);
    EXPECT_THAT(first_weight(*found), testing::AnyOf(2, 70));
    if (count == trace.size()) {
      EXPECT_EQ(first_weight(*found), 70);
    }
  });
}

TEST_F(Crash, AFailureOfAnyOperationIsReportedAndCostsNothing) {
  for (const int reason : {EIO, ENOSPC}) {
    for (size_t failing = 0;; ++failing) {
      fs::remove_all(state_);
      fs::copy(before_, state_, fs::copy_options::recursive);
      TracingFileSystem files;
      Folder folder(state_, {.keep = 2}, files);
      files.asked = 0;
      files.fail_at = failing;
      files.reason = reason;
      int64_t expected = 3;
      try {
        save(folder, 3);
      } catch (const Error& error) {
        expected = 2;
        EXPECT_EQ(error.code(), ErrorCode::io);
        EXPECT_THAT(error.what(), HasSubstr(state_.string()));
        EXPECT_THAT(error.what(), HasSubstr(std::strerror(reason)));
      }
      const bool all_seen = files.asked <= failing;
      files.fail_at = std::numeric_limits<size_t>::max();
      // A folder that could not be synced may still have its new name.
      EXPECT_GE(newest_step(folder), expected);
      if (expected == 2) {
        EXPECT_EQ(open_checkpoint(state_ / "step-000000001").manifest.step, 1);
      }
      save(folder, 4);
      EXPECT_EQ(newest_step(folder), 4);
      if (HasFailure()) FAIL() << "operation " << failing;
      if (all_seen) break;
    }
  }
}

TEST_F(Crash, AFullDiskIsReportedWhateverFits) {
  TracingFileSystem files;
  Folder folder(runs_, {.keep = 2}, files);
  uint64_t whole = 0;
  {
    TracingFileSystem counting;
    Folder elsewhere(folder_ / "elsewhere", {}, counting);
    counting.free_bytes = 1 << 20;
    save(elsewhere, 3);
    whole = (1 << 20) - counting.free_bytes;
  }
  ASSERT_GT(whole, 800u);
  for (uint64_t room = 0; room < whole; room += 29) {
    files.free_bytes = room;
    EXPECT_TRUE(fails_with(ErrorCode::io,
                           {runs_, "No space left on device", "bytes", "another disk"},
                           [&] { save(folder, 3); }))
        << room;
    EXPECT_EQ(newest_step(folder), 2);
    EXPECT_THAT(names_in(runs_),
                testing::ElementsAre(".lock", "step-000000001", "step-000000002"));
  }
  files.free_bytes = whole;
  save(folder, 3);
  EXPECT_EQ(newest_step(folder), 3);
}

}  // namespace
}  // namespace trireme::checkpoint::crash_test
