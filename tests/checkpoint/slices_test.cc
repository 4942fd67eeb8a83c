// Checkpoints in slices: any layout reads any other, a rank reads no more than its slices, and
// damage is found and named.
#include <gmock/gmock.h>
#include <trireme/base/log.h>
#include <trireme/checkpoint/load.h>
#include <trireme/checkpoint/open_checkpoint.h>
#include <trireme/checkpoint/slice_reader.h>
#include <trireme/checkpoint/tensor_file.h>

#include "old_format.h"
#include "sliced_testing.h"

namespace trireme::checkpoint::slices_test {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;

class Slices : public SlicedFolder {
 protected:
  Slices() { set_log_level(LogLevel::error); }
  ~Slices() override { set_log_level(LogLevel::info); }
  // Writes the manifest anew, with a seal that fits.
  static void change_manifest(const std::filesystem::path& checkpoint,
                              const std::function<void(Json&)>& change) {
    Json fields = Json::parse(read_file(checkpoint / kManifestFile));
    fields.erase("sha256");
    change(fields);
    write_manifest(checkpoint, fields);
  }
};

TEST_F(Slices, OfAnyNumberOfRanksAreReadByAnyOther) {
  Folder folder(runs_, {.keep = 9});
  for (int before = 1; before <= 5; ++before) {
    const auto path = save_sliced(folder, before, before);
    for (int after = 1; after <= 5; ++after)
      for (int rank = 0; rank < after; ++rank) {
        SliceReader reader(path);
        EXPECT_TRUE(reads_right(reader, rank, after)) << before << " to " << after;
      }
  }
}

TEST_F(Slices, LieInFilesUnderTheTensorsOwnName) {
  Folder folder(runs_);
  const auto path = save_sliced(folder, 5, 3);
  EXPECT_THAT(names_in(path),
              ElementsAre("history.safetensors", "manifest.json", "model-1.safetensors",
                          "model-2.safetensors", "model.safetensors", "optimizer-1.safetensors",
                          "optimizer-2.safetensors", "optimizer.safetensors",
                          "pieces-1.safetensors", "pieces-2.safetensors", "pieces.safetensors"));
  EXPECT_EQ(SafetensorsFile(path / "model-1.safetensors").find("w")->spec.describe(),
            "float32[3, 6]");
  const Saved saved = open_checkpoint(path);
  EXPECT_EQ(saved.manifest.loss_history.size(), 5u);
  EXPECT_EQ(saved.model->find("w"), nullptr);
  EXPECT_NE(saved.optimizer->find("step"), nullptr);
  const auto tensors = catalogue_of(saved, kModelFile);
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors[0].spec.describe(), "float32[8, 6]");
  EXPECT_EQ(tensors[0].parts.size(), 3u);
}

TEST_F(Slices, OneRankReadsThePiecesOfItsSlicesAndNoMore) {
  Folder folder(runs_);
  const Sizes big{4'096, 512};  // 8 MiB each.
  const auto path = save_sliced(folder, 5, 4, big);
  uint64_t of_all = 0;
  for (int rank = 0; rank < 3; ++rank) {
    SliceReader reader(path);
    const auto slice = slice_of("w", {big.rows, big.columns}, 0, rank, 3);
    std::vector<std::byte> place(static_cast<size_t>(4 * slice.elements()));
    reader.read({{slice, place}});
    EXPECT_EQ(place, values_of(slice, kOfModel));
    // Its rows lie in two files: at each end of a run at most a piece more, and two headers.
    EXPECT_LE(reader.bytes_read(), place.size() + 6 * kDigestPiece) << rank;
    of_all += reader.bytes_read();
  }
  EXPECT_LT(of_all, (8u << 20) + 18 * kDigestPiece);
}

TEST_F(Slices, OfWholeCheckpointsOfEveryFormatAreRead) {
  for (const int format : {3, 2, 1}) {
    Folder folder(runs_);
    const auto path = save(folder, 7);
    if (format < 3) turn_into_format(format, path);
    SliceReader reader(path);
    const auto slice = slice_of("w", {64}, 0, 1, 3);
    std::vector<std::byte> place(static_cast<size_t>(4 * slice.elements()));
    reader.read({{slice, place}});
    EXPECT_EQ(place, values_of(slice, 7)) << format;
    flip_bit(path / kModelFile, std::filesystem::file_size(path / kModelFile) - 1);
    EXPECT_TRUE(fails_with(ErrorCode::corrupt, {path / kModelFile}, [&] {
      SliceReader(path).read({{slice, place}});
    })) << format;
  }
}

TEST_F(Slices, ADamagedByteIsFoundByTheRanksThatReadIt) {
  Folder folder(runs_);
  const auto path = save_sliced(folder, 5, 3);
  for (const std::string& name : names_in(path)) {
    const std::string whole = read_file(path / name);
    for (size_t byte = 0; byte < whole.size(); byte += 5) {
      flip_bit(path / name, byte, static_cast<int>(byte % 8));
      const auto touched = [&] {
        for (int rank = 0; rank < 2; ++rank) {
          SliceReader reader(path);
          if (!reads_right(reader, rank, 2)) ADD_FAILURE() << "wrong values";
        }
      };
      ASSERT_TRUE(fails_with(name == kManifestFile ? error_of(touched).code() : ErrorCode::corrupt,
                             {path / name}, touched))
          << name << " byte " << byte;
      ASSERT_TRUE(
          fails_with(ErrorCode::corrupt, {path / name}, [&] { verify(open_manifest(path)); }) ||
          name == kManifestFile);
    }
    overwrite(path / name, whole);
  }
}

TEST_F(Slices, AMissingFileIsNamedWithTheRankThatWroteIt) {
  Folder folder(runs_);
  const auto path = save_sliced(folder, 5, 3);
  for (const char* const name : {"model-2.safetensors", "pieces-2.safetensors"}) {
    std::filesystem::rename(path / name, folder_ / "aside");
    for (const auto& open : {std::function<void()>([&] { SliceReader reader(path); }),
                             std::function<void()>([&] { open_checkpoint(path); })})
      EXPECT_TRUE(
          fails_with(ErrorCode::corrupt, {path / name, "is missing; rank 20 wrote it"}, open));
    std::filesystem::rename(folder_ / "aside", path / name);
  }
}

TEST_F(Slices, ThatOverlapOrLeaveAHoleAreRefused) {
  Folder folder(runs_);
  const auto path = save_sliced(folder, 5, 2);
  const auto set_from = [&](int row) {
    change_manifest(path, [&](Json& fields) {
      fields["slices"]["model-1.safetensors"]["w"]["from"] = {row, 0};
    });
  };
  const auto open = [&] { open_checkpoint(path); };
  set_from(3);
  EXPECT_TRUE(fails_with(
      ErrorCode::corrupt,
      {path.string(), "w[3:7, 0:6] of [8, 6] in model-1.safetensors overlaps", "w[0:4, 0:6]"},
      open));
  EXPECT_TRUE(fails_with(ErrorCode::corrupt, {"overlaps"}, [&] { SliceReader reader(path); }));
  set_from(5);
  EXPECT_TRUE(fails_with(ErrorCode::corrupt, {"no fitting slice for 'w'"}, open));
  set_from(4);
  open();
  change_manifest(path, [](Json& fields) {
    for (const char* const file : {"model.safetensors", "model-1.safetensors"})
      fields["slices"][file]["w"]["shape"] = {9, 6};
  });
  EXPECT_TRUE(fails_with(ErrorCode::corrupt, {"no slice holds w[8:9, 0:6] of [9, 6]"}, open));
  change_manifest(path, [](Json& fields) { fields["slices"]["model.safetensors"].erase("w"); });
  EXPECT_TRUE(fails_with(ErrorCode::corrupt, {"another shape"}, open));
  change_manifest(path, [](Json& fields) {
    fields["slices"]["other.safetensors"]["w"] = {
        {"tensor", "w"}, {"shape", {8, 6}}, {"from", {0, 0}}};
  });
  EXPECT_TRUE(fails_with(ErrorCode::corrupt, {"other.safetensors"}, open));
}

TEST_F(Slices, OfAnotherShapeOrNameAreRefusedByBoth) {
  Folder folder(runs_);
  SliceReader reader(save_sliced(folder, 5, 2));
  std::vector<std::byte> place(4 * 9 * 6);
  EXPECT_TRUE(fails_with(ErrorCode::invalid_argument, {"'w'", "float32[8, 6]", "w[9, 6]"},
                         [&] { reader.read({{plan::TensorSlice::whole("w", {9, 6}), place}}); }));
  EXPECT_TRUE(fails_with(ErrorCode::invalid_argument, {"no tensor 'v'"},
                         [&] { reader.read({{plan::TensorSlice::whole("v", {9, 6}), place}}); }));
  EXPECT_TRUE(fails_with(ErrorCode::invalid_argument, {"192 bytes", "216"},
                         [&] { reader.read({{plan::TensorSlice::whole("w", {8, 6}), place}}); }));
}

TEST_F(Slices, AreTheSameTensorsForToolsHoweverTheyAreCut) {
  Folder folder(runs_, {.keep = 9});
  const TensorFile three = open_tensors(save_sliced(folder, 3, 3)),
                   five = open_tensors(save_sliced(folder, 5, 5));
  EXPECT_THAT(differences(three, five), ElementsAre());
  const auto path = folder_ / "merged.safetensors";
  std::vector<std::byte> memory;
  write_safetensors(path, {three.tensors[0].spec},
                    [&](size_t i) { return assemble(three.tensors[i], memory); });
  EXPECT_THAT(differences(open_tensors(path), five), ElementsAre());
  const OwnedTensor whole("w", {8, 6}, plan::DType::float32, kOfModel);
  EXPECT_TRUE(std::ranges::equal(SafetensorsFile(path).find("w")->bytes, whole.bytes));
}

}  // namespace
}  // namespace trireme::checkpoint::slices_test
