// Decides which rank stands where: a grid with named axes (data, stage, tensor, shard). Pure.
#pragma once
#include <trireme/base/json.h>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::plan {

struct MeshAxis {
  std::string name;
  int size = 1;
};

class Mesh {
 public:
  // The last axis varies fastest. Throws Error(invalid_argument) naming the axis: no axes, a size
  // below 1, a name twice.
  explicit Mesh(std::vector<MeshAxis> axes);

  int world_size() const;
  std::vector<int> coordinates_of(
      int rank) const;  // One per axis. Throws Error(invalid_argument) outside the world.
  int rank_at(const std::vector<int>& coordinates) const;  // Likewise.
  std::vector<int> peers_along(std::string_view axis,
                               int rank)
      const;  // Ranks that differ from `rank` on that axis only, ascending, itself included.
  const std::vector<MeshAxis>& axes() const { return axes_; }
  std::string describe() const;
  Json to_json() const;

 private:
  std::vector<MeshAxis> axes_;
};

// Throws Error(internal) unless every coordinate belongs to exactly one rank.
void check(const Mesh& mesh);

}  // namespace trireme::plan
