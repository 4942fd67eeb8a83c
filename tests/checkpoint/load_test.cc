#include <trireme/checkpoint/load.h>

#include <gmock/gmock.h>
#include <trireme/base/log.h>
#include <map>

#include "folder_testing.h"

namespace trireme::checkpoint::load_test {
namespace {

// Reads every tensor into new memory.
struct Taken {
  std::map<std::string, std::vector<std::byte>> bytes;
  std::vector<Destination> operator()(const Saved& saved) {
    std::vector<Destination> destinations;
    for (const SafetensorsFiles* file : {saved.model.get(), saved.optimizer.get()})
      for (const TensorView& tensor : file->tensors()) {
        auto& place = bytes[tensor.spec.name];
        place.resize(tensor.bytes.size());
        destinations.push_back({&tensor, place});
      }
    return destinations;
  }
};

class Loading : public CheckpointFolder {
 protected:
  Loading() { set_log_level(LogLevel::error); }
  ~Loading() override { set_log_level(LogLevel::info); }
  static Place into(Taken& taken) {
    return [&taken](const Saved& saved) { return taken(saved); };
  }
  static float first_of(const Taken& taken) {
    float value = 0;
    std::memcpy(&value, taken.bytes.at("w").data(), sizeof value);
    return value;
  }
};

TEST_F(Loading, PutsEveryByteInItsPlaceWhateverTheSizes) {
  Folder folder(runs_, {.keep = 9});
  int64_t step = 0;
  for (const int64_t size : {0, 1, 63, 65'536, 65'537, 300'001, 1'000'000}) {
    const OwnedTensor big("big", {size}, plan::DType::float32, 3), none("none", {0}),
        odd("odd", {1001}, plan::DType::uint8, 9);
    const OwnedTensor moment("moment", {size}, plan::DType::float64, 5);
    Manifest manifest;
    manifest.step = ++step;
    folder.save(manifest, {odd.view(), none.view(), big.view()}, {moment.view()});
    Taken taken;
    ASSERT_EQ(load_newest(runs_, into(taken))->manifest.step, step);
    for (const OwnedTensor* tensor : {&big, &none, &odd, &moment})
      EXPECT_EQ(taken.bytes.at(tensor->spec.name), tensor->bytes) << size;
  }
}

TEST_F(Loading, VerifiesTensorsWithoutAPlaceToo) {
  Folder folder(runs_);
  const OwnedTensor a("a", {100'000}), b("b", {100'000}), c("c", {100'000});
  const auto path = folder.save({}, {a.view(), b.view(), c.view()}, {});
  std::vector<std::byte> place(b.bytes.size());
  const Place only_b = [&](const Saved& saved) {
    return std::vector<Destination>{{saved.model->find("b"), place}};
  };
  load_checkpoint(path, only_b);
  EXPECT_EQ(place, b.bytes);
  flip_bit(path / "model.safetensors", std::filesystem::file_size(path / "model.safetensors") - 1);
  EXPECT_TRUE(fails_with(ErrorCode::corrupt, {path / "model.safetensors", "was changed"},
                         [&] { load_checkpoint(path, only_b); }));
}

TEST_F(Loading, AfterDamageFillsThePlacesFromTheNewestWholeOne) {
  Folder folder(runs_, {.keep = 3});
  for (const int step : {10, 20, 30}) save(folder, step);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const auto damaged = runs_ / "step-000000030" / file;
    const std::string whole = read_file(damaged);
    for (size_t byte = 0; byte < whole.size(); byte += 7) {
      flip_bit(damaged, byte);
      Taken taken;
      ASSERT_EQ(load_newest(runs_, into(taken))->manifest.step, 20) << file << " byte " << byte;
      ASSERT_EQ(first_of(taken), 20);
    }
    overwrite(damaged, whole);
  }
}

// A flipped bit in a name looks like another model.
TEST_F(Loading, AMisfitIsTheRunsErrorOnlyIfTheCheckpointIsWhole) {
  Folder folder(runs_, {.keep = 3});
  for (const int step : {10, 20}) save(folder, step);
  Taken taken;
  const Place picky = [&](const Saved& saved) {
    if (saved.model->find("w") == nullptr)
      throw Error(ErrorCode::invalid_argument, "test", "another model");
    return taken(saved);
  };
  const auto file = runs_ / "step-000000020" / "model.safetensors";
  flip_bit(file, read_file(file).find("\"w\"") + 1);
  EXPECT_EQ(load_newest(runs_, picky)->manifest.step, 10);
  const Place never = [](const Saved&) -> std::vector<Destination> {
    throw Error(ErrorCode::invalid_argument, "test", "another model");
  };
  EXPECT_TRUE(fails_with(ErrorCode::invalid_argument, {"another model"},
                         [&] { load_newest(runs_, never); }));
}

TEST_F(Loading, RefusesAPlaceOfAnotherSize) {
  Folder folder(runs_);
  const auto path = save(folder, 3);
  std::vector<std::byte> place(5);
  EXPECT_TRUE(fails_with(ErrorCode::invalid_argument, {"w", "256", "5"}, [&] {
    load_checkpoint(path, [&](const Saved& saved) {
      return std::vector<Destination>{{saved.model->find("w"), place}};
    });
  }));
}

TEST_F(Loading, OfAnEmptyFolderGivesNothing) {
  const Folder folder(runs_);
  Taken taken;
  EXPECT_FALSE(load_newest(runs_, into(taken)));
}

}  // namespace
}  // namespace trireme::checkpoint::load_test
