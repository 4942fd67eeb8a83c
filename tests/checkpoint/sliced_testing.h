// Checkpoints that several ranks write in slices, with values by which a test recognises them.
#pragma once
#include <fmt/format.h>
#include <trireme/checkpoint/slice_reader.h>
#include <trireme/plan/slice_plan.h>

#include "folder_testing.h"

namespace trireme::checkpoint {

// The rows or columns of a tensor that one of `ranks` has.
inline plan::TensorSlice slice_of(const std::string& name, std::vector<int64_t> shape, size_t dim,
                                  int rank, int ranks) {
  plan::TensorSlice slice = plan::TensorSlice::whole(name, std::move(shape));
  const int64_t size = slice.shape[dim];
  slice.from[dim] = size * rank / ranks;
  slice.sizes[dim] = size * (rank + 1) / ranks - slice.from[dim];
  return slice;
}

// The slice's elements: element i of the whole tensor is start + i.
inline std::vector<std::byte> values_of(const plan::TensorSlice& slice, int start) {
  const auto whole = plan::TensorSlice::whole(slice.tensor, slice.shape);
  const OwnedTensor source(slice.tensor, slice.shape, plan::DType::float32, start);
  std::vector<std::byte> values(static_cast<size_t>(4 * slice.elements()));
  for (const auto& [from, to, elements] : plan::runs_of(slice, whole, slice))
    std::memcpy(&values[static_cast<size_t>(4 * to)], &source.bytes[static_cast<size_t>(4 * from)],
                static_cast<size_t>(4 * elements));
  return values;
}

class SlicedFolder : public CheckpointFolder {
 protected:
  using CheckpointFolder::CheckpointFolder;
  struct Sizes {
    int64_t rows = 8, columns = 6;
  };
  static constexpr int kOfModel = 100, kOfMoment = 500;

  // The rows of "w", the model's, and the columns of "exp_avg/w". Rank 0 has "step" too. Rank r of
  // n is called 10 * r, so that a part is not mistaken for its rank.
  std::filesystem::path save_sliced(Folder& folder, int64_t step, int ranks, Sizes sizes) {
    Manifest manifest;
    manifest.step = step;
    manifest.loss_history.assign(static_cast<size_t>(step), 0.5);
    Part part{0, ranks, fmt::format("a{}", step)};
    for (int rank = 0; rank < ranks; ++rank) part.ranks.push_back(10 * rank);
    const OwnedTensor counter("step", {1}, plan::DType::float32, static_cast<int>(step));
    std::filesystem::path saved;
    for (int rank = ranks - 1; rank >= 0; --rank) {
      part.index = rank;
      std::vector<TensorView> views[2];
      std::vector<std::byte> bytes[2];
      for (const size_t of_optimizer : {0, 1}) {
        const std::string name = of_optimizer == 0 ? "w" : "exp_avg/w";
        const auto slice = slice_of(name, {sizes.rows, sizes.columns}, of_optimizer, rank, ranks);
        bytes[of_optimizer] = values_of(slice, of_optimizer == 0 ? kOfModel : kOfMoment);
        views[of_optimizer].push_back(
            {{name, slice.sizes, plan::DType::float32}, bytes[of_optimizer]});
        manifest.slices[file_of_part(of_optimizer == 0 ? kModelFile : kOptimizerFile, rank)]
                       [name] = {name, slice.shape, slice.from};
      }
      if (rank == 0) views[1].push_back(counter.view());
      const TensorFiles files(views[0], views[1], rank);
      if (rank == 0)
        saved = folder.save(manifest, files.content(), part, [] { return false; });
      else
        write_part(disk(), runs_, step, part, files.content());
    }
    return saved;
  }
  std::filesystem::path save_sliced(Folder& folder, int64_t step, int ranks) {
    return save_sliced(folder, step, ranks, Sizes());
  }

  // Reads the slices of one rank, and returns whether they have their values.
  static bool reads_right(SliceReader& reader, int rank, int ranks, Sizes sizes) {
    std::vector<std::vector<std::byte>> places, expected;
    std::vector<SliceDestination> destinations;
    for (const char* const name : {"w", "exp_avg/w"}) {
      const auto slice = slice_of(name, {sizes.rows, sizes.columns}, 0, rank, ranks);
      expected.push_back(values_of(slice, std::string(name) == "w" ? kOfModel : kOfMoment));
      places.emplace_back(expected.back().size());
      destinations.push_back({slice, {}});
    }
    for (size_t i = 0; i < places.size(); ++i) destinations[i].bytes = places[i];
    reader.read(destinations);
    return places == expected;
  }
  static bool reads_right(SliceReader& reader, int rank, int ranks) {
    return reads_right(reader, rank, ranks, Sizes());
  }
};

}  // namespace trireme::checkpoint
