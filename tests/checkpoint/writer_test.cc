#include <trireme/checkpoint/writer.h>

#include <gmock/gmock.h>
#include <trireme/base/log.h>
#include <atomic>

#include "folder_testing.h"
#include "tracing_file_system.h"

namespace trireme::checkpoint::writer_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

// A disk on which each write waits until the gate is opened for it.
class GatedFileSystem : public TracingFileSystem {
 public:
  void make_folder(const std::filesystem::path& path) override {
    if (path.filename().string().starts_with(".writing-")) {
      std::unique_lock lock(mutex_);
      ++waiting_;
      changed_.notify_all();
      changed_.wait_for(lock, std::chrono::seconds(10), [&] { return open_ > 0; });
      --open_;
    }
    TracingFileSystem::make_folder(path);
  }
  void open(int writes = 1) {
    const std::lock_guard lock(mutex_);
    open_ += writes;
    changed_.notify_all();
  }
  // Waits until `writes` writes have arrived at the gate in total.
  bool wait_for_writes(int writes) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return waiting_ >= writes; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int open_ = 0, waiting_ = 0;
};

class CheckpointWriter : public CheckpointFolder {
 protected:
  static std::filesystem::path save(Writer& writer, int64_t step, int start) {
    Manifest manifest;
    manifest.step = step;
    OwnedTensor weight("w", {3000}, plan::DType::float32, start),
        half("h", {7}, plan::DType::float16, 3);
    const OwnedTensor moment("w.exp_avg", {3000}, plan::DType::float32, 2);
    const auto path = writer.save(manifest, {half.view(), weight.view()}, {moment.view()});
    std::fill(weight.bytes.begin(), weight.bytes.end(), std::byte{0xee});  // Training continues.
    return path;
  }
};

TEST_F(CheckpointWriter, SavesTheTensorsAsTheyWereAtTheCall) {
  for (const bool background : {true, false}) {
    Writer writer(Folder(runs_ / (background ? "b" : "f")), {.background = background});
    const auto path = save(writer, 5, 50);
    writer.wait();
    EXPECT_THAT(writer.take_saved(), ElementsAre(path));
    EXPECT_TRUE(writer.take_saved().empty());
    const Saved saved = open_checkpoint(path);
    EXPECT_EQ(first_weight(saved), 50);
    EXPECT_EQ(saved.model->find("h")->bytes.size(), 14u);
    EXPECT_EQ(saved.optimizer->find("w.exp_avg")->bytes.size(), 12000u);
  }
  // Both ways write the same files.
  for (const char* name : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(read_file(runs_ / "b" / "step-000000005" / name),
              read_file(runs_ / "f" / "step-000000005" / name));
}

TEST_F(CheckpointWriter, ReturnsBeforeAnythingIsWritten) {
  GatedFileSystem files;
  Writer writer(Folder(runs_, {}, files));
  const auto path = save(writer, 5, 50);
  ASSERT_TRUE(files.wait_for_writes(1));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(writer.take_saved().empty());
  EXPECT_FALSE(writer.is_done_within(std::chrono::milliseconds(1)));
  files.open();
  EXPECT_TRUE(writer.is_done_within(std::chrono::seconds(10)));
  writer.wait();
  EXPECT_EQ(first_weight(open_checkpoint(path)), 50);
}

TEST_F(CheckpointWriter, TakesASecondSnapshotWhileTheFirstIsWrittenAndWaitsWithTheThird) {
  GatedFileSystem files;
  Writer writer(Folder(runs_, {.keep = 5}, files));
  save(writer, 1, 10);
  save(writer, 2, 20);
  std::atomic<bool> third_returned = false;
  std::jthread third([&] {
    save(writer, 3, 30);
    third_returned = true;
  });
  ASSERT_TRUE(files.wait_for_writes(1));
  EXPECT_FALSE(third_returned);
  files.open(3);
  third.join();
  writer.wait();
  EXPECT_THAT(names_in(runs_),
              ElementsAre(".lock", "step-000000001", "step-000000002", "step-000000003"));
  for (const int64_t step : {1, 2, 3})
    EXPECT_EQ(first_weight(open_checkpoint(writer.folder().path_of(step))),
              static_cast<float>(10 * step));
}

TEST_F(CheckpointWriter, ReusesItsMemoryForModelsOfAnySize) {
  Writer writer(Folder(runs_, {.keep = 9}));
  for (const int64_t size : {10, 100'000, 0, 2'000'000}) {
    Manifest manifest;
    manifest.step = size + 1;
    const OwnedTensor weight("w", {size}, plan::DType::float32, 1);
    const auto path = writer.save(manifest, {weight.view()}, {});
    writer.wait();
    const auto saved = open_checkpoint(path);
    const auto bytes = saved.model->find("w")->bytes;
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), weight.bytes.begin(), weight.bytes.end()));
  }
}

TEST_F(CheckpointWriter, AnErrorComesOutOfTheNextCallOnceAndCostsNoOlderCheckpoint) {
  for (const bool asks_by_saving : {true, false}) {
    TracingFileSystem files;
    Writer writer(Folder(runs_ / std::to_string(asks_by_saving), {.keep = 1}, files));
    save(writer, 1, 10);
    writer.wait();
    files.free_bytes = 100;
    save(writer, 2, 20);
    const auto ask = [&] {
      if (!asks_by_saving) return writer.wait();
      // The second save waits for the first at the latest.
      for (int64_t step = 3;; ++step) save(writer, step, 1);
    };
    EXPECT_TRUE(fails_with(ErrorCode::io, {"step-000000002", "No space left on device"}, ask));
    try {
      writer.wait();
    } catch (const Error&) {
      // The error of a step after 2.
    }
    files.free_bytes = 1 << 30;
    EXPECT_EQ(newest_step(writer.folder()), 1);
    save(writer, 9, 90);
    writer.wait();
    EXPECT_EQ(newest_step(writer.folder()), 9);
  }
}

TEST_F(CheckpointWriter, MarksASaveUntilItIsDurableOrAbandoned) {
  std::atomic<int> under_way = 0;
  std::atomic<int64_t> newest = 0;
  const auto mark = [&](int64_t step) {
    ++under_way;
    newest = step;
    return std::shared_ptr<void>(nullptr, [&](void*) { --under_way; });
  };
  GatedFileSystem files;
  Writer writer(Folder(runs_, {}, files), {.mark = mark});
  save(writer, 5, 50);
  ASSERT_TRUE(files.wait_for_writes(1));
  EXPECT_EQ(under_way, 1);  // The save runs in the background.
  EXPECT_EQ(newest, 5);
  files.open();
  writer.wait();
  EXPECT_EQ(under_way, 0);
  files.free_bytes = 100;
  save(writer, 6, 60);
  files.open();
  EXPECT_THROW(writer.wait(), Error);
  EXPECT_EQ(under_way, 0);
}

TEST_F(CheckpointWriter, ADestructorFinishesSavesThatHaveBegun) {
  GatedFileSystem files;
  {
    Writer writer(Folder(runs_, {}, files));
    save(writer, 1, 10);
    save(writer, 2, 20);
    files.open(2);
  }
  EXPECT_THAT(names_in(runs_), ElementsAre("step-000000001", "step-000000002"));
}

TEST_F(CheckpointWriter, ADiskThatHangsEndsInATimeout) {
  GatedFileSystem files;
  Writer writer(Folder(runs_, {}, files), {.timeout = std::chrono::milliseconds(20)});
  save(writer, 7, 10);
  EXPECT_TRUE(fails_with(ErrorCode::timeout, {"step-000000007", "disk"}, [&] { writer.wait(); }));
  files.open();
}

TEST_F(CheckpointWriter, RefusesTensorsThatCannotBeWrittenAtOnce) {
  Writer writer{Folder(runs_)};
  const OwnedTensor weight("w", {4});
  EXPECT_TRUE(fails_with(ErrorCode::invalid_argument, {"twice"},
                         [&] { writer.save({}, {weight.view(), weight.view()}, {}); }));
  save(writer, 1, 10);
  writer.wait();
  EXPECT_EQ(newest_step(writer.folder()), 1);
}

}  // namespace
}  // namespace trireme::checkpoint::writer_test
