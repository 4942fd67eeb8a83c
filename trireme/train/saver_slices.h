// The slices of a state over all ranks: who writes what of them, and how a rank reads its own.
#pragma once
#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <trireme/checkpoint/slice_reader.h>
#include <trireme/comm/group.h>
#include <trireme/parallel/state_view.h>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

// Which tensors of a state are in slices, and what each rank writes of them in a checkpoint.
struct StateSlices {
  // Names in a file of the tensors that some rank does not have as a whole.
  std::set<std::string> tensors;
  // This rank writes these: the index of an entry of its view, and the entry's name in the file.
  // Among equal slices the lowest rank's is written.
  std::vector<std::pair<size_t, std::string>> written;
  // For the manifest: what all ranks write.
  std::map<std::string, std::map<std::string, checkpoint::StoredSlice>> in_files;

  // The flaw if the slices of all ranks are not whole tensors: it names two that overlap, or
  // a hole. Empty if all is well. The same on every rank.
  std::string flaw;

  bool any() const { return !tensors.empty(); }
  bool has(const StateEntry& entry) const {
    return !is_of_one_rank(entry.kind) && tensors.contains(name_in_file(entry, 0));
  }
};
// COLLECTIVE. Without slices it is empty, and only two numbers are exchanged.
StateSlices slices_of(const StateView& view, Group& group);

// COLLECTIVE. Returns nothing if no rank has an error. Otherwise returns the error of the lowest
// rank that has one, on every rank.
std::optional<Error> error_of_any(const std::optional<Error>& mine, Group& group);
// An error of LibTorch or of a strategy becomes Error(internal).
Error as_error(const std::exception& error);
// COLLECTIVE. Runs `action` on this rank and then agrees with the others on its error.
std::optional<Error> attempt_on_all(Group& group, const std::function<void()>& action);

// The entries' places for a checkpoint's slices. Tensors of another type are converted.
class SlicePlaces {
 public:
  // Throws Error(invalid_argument) unless the checkpoint has the tensor in this shape, and for a
  // tensor of the model in its type.
  void add(const StateEntry& entry, const checkpoint::SliceReader& reader);
  // Reads them all. If it throws, the entries' content is undefined.
  void read(checkpoint::SliceReader& reader);

 private:
  struct Place {
    at::Tensor tensor, read_into;
    plan::TensorSlice slice;
  };
  std::vector<Place> places_;
};

}  // namespace trireme
