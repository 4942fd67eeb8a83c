// Decides the place of each rank in a grid with named axes (data, stage, tensor, shard). The
// functions are pure.
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
  // The last axis varies fastest. Throws Error(invalid_argument) naming the axis if there are no
  // axes, a size is below 1, a name appears twice, or the ranks are too many to count.
  explicit Mesh(std::vector<MeshAxis> axes);

  int world_size() const;
  // The coordinates of a rank, one per axis. Throws Error(invalid_argument) for a rank
  // outside the world.
  std::vector<int> coordinates_of(int rank) const;
  // The rank at these coordinates. Throws Error(invalid_argument) if they are outside the mesh.
  int rank_at(const std::vector<int>& coordinates) const;
  // The ranks that differ from `rank` on that axis only, in ascending order, with `rank` itself.
  // Throws Error(invalid_argument) for an unknown axis or a rank outside the world.
  std::vector<int> peers_along(std::string_view axis, int rank) const;
  const std::vector<MeshAxis>& axes() const { return axes_; }
  std::string describe() const;
  Json to_json() const;

 private:
  std::vector<MeshAxis> axes_;
};

// Throws Error(internal) unless every coordinate belongs to exactly one rank.
void check(const Mesh& mesh);

}  // namespace trireme::plan
