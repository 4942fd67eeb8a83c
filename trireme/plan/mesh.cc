#include <trireme/plan/mesh.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <set>

namespace trireme::plan {
namespace {

std::string names_of(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : axes) names.push_back(axis.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Mesh::Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  if (axes_.empty())
    throw Error(ErrorCode::invalid_argument, "plan", "a mesh needs at least one axis",
                "data: the world size");
  std::set<std::string> names;
  int ranks = 1;
  for (const MeshAxis& axis : axes_) {
    if (axis.size < 1) {
      throw Error(ErrorCode::invalid_argument, "plan",
                  fmt::format("mesh axis '{}' has size {}, and must have at least 1", axis.name,
                              axis.size));
    }
    if (!names.insert(axis.name).second) {
      throw Error(ErrorCode::invalid_argument, "plan",
                  fmt::format("mesh axis '{}' is given twice", axis.name),
                  "one entry for each axis");
    }
    if (__builtin_mul_overflow(ranks, axis.size, &ranks)) {
      throw Error(ErrorCode::invalid_argument, "plan",
                  fmt::format("mesh axis '{}' of size {} makes more ranks than can be counted",
                              axis.name, axis.size));
    }
  }
}

int Mesh::world_size() const {
  int ranks = 1;
  for (const MeshAxis& axis : axes_) ranks *= axis.size;
  return ranks;
}

std::vector<int> Mesh::coordinates_of(int rank) const {
  if (rank < 0 || rank >= world_size()) {
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("rank {} is outside the mesh of {} ranks", rank, world_size()));
  }
  std::vector<int> coordinates(axes_.size());
  for (size_t i = axes_.size(); i-- > 0;) {
    coordinates[i] = rank % axes_[i].size;
    rank /= axes_[i].size;
  }
  return coordinates;
}

int Mesh::rank_at(const std::vector<int>& coordinates) const {
  if (coordinates.size() != axes_.size()) {
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("{} coordinates were given for a mesh of {} axes ({})",
                            coordinates.size(), axes_.size(), names_of(axes_)));
  }
  int rank = 0;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (coordinates[i] < 0 || coordinates[i] >= axes_[i].size) {
      throw Error(ErrorCode::invalid_argument, "plan",
                  fmt::format("coordinate {} is outside mesh axis '{}' of size {}", coordinates[i],
                              axes_[i].name, axes_[i].size));
    }
    rank = rank * axes_[i].size + coordinates[i];
  }
  return rank;
}

std::vector<int> Mesh::peers_along(std::string_view axis, int rank) const {
  const auto found =
      std::find_if(axes_.begin(), axes_.end(), [&](const MeshAxis& a) { return a.name == axis; });
  if (found == axes_.end()) {
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("the mesh has no axis '{}'", axis), "one of " + names_of(axes_));
  }
  std::vector<int> coordinates = coordinates_of(rank);
  std::vector<int> peers;
  for (int along = 0; along < found->size; ++along) {
    coordinates[static_cast<size_t>(found - axes_.begin())] = along;
    peers.push_back(rank_at(coordinates));
  }
  return peers;
}

std::vector<std::vector<int>> Mesh::groups_along(std::string_view axis) const {
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < world_size(); ++rank) {
    std::vector<int> peers = peers_along(axis, rank);
    if (peers.front() == rank) groups.push_back(std::move(peers));
  }
  return groups;
}

// Draws one line for each combination of the axes before the last; the ranks of the last axis
// stand side by side:
//   data  stage | tensor 0  1
//      0      0 |        0  1
std::string Mesh::describe() const {
  constexpr int kMostLines = 32;
  constexpr int kMostColumns = 16;
  std::vector<std::string> sizes;
  for (const MeshAxis& axis : axes_) sizes.push_back(fmt::format("{} {}", axis.name, axis.size));
  std::string text = fmt::format("mesh of {} ranks: {}\n", world_size(), fmt::join(sizes, " x "));

  const MeshAxis& last = axes_.back();
  const int columns = std::min(last.size, kMostColumns);
  const int lines = world_size() / last.size;
  const size_t width = fmt::formatted_size("{}", world_size() - 1) + 2;
  const auto end_line = [&] { text += columns < last.size ? "  ...\n" : "\n"; };

  for (size_t i = 0; i + 1 < axes_.size(); ++i) text += "  " + axes_[i].name;
  text += "  | " + last.name;
  for (int column = 0; column < columns; ++column) text += fmt::format("{:>{}}", column, width);
  end_line();
  for (int line = 0; line < std::min(lines, kMostLines); ++line) {
    const std::vector<int> coordinates = coordinates_of(line * last.size);
    for (size_t i = 0; i + 1 < axes_.size(); ++i)
      text += fmt::format("  {:>{}}", coordinates[i], axes_[i].name.size());
    text += "  | " + std::string(last.name.size(), ' ');
    for (int column = 0; column < columns; ++column)
      text += fmt::format("{:>{}}", line * last.size + column, width);
    end_line();
  }
  if (lines > kMostLines) text += fmt::format("  ... {} more lines\n", lines - kMostLines);
  return text;
}

Json Mesh::to_json() const {
  Json json = {{"world_size", world_size()}, {"axes", Json::array()}};
  for (const MeshAxis& axis : axes_)
    json["axes"].push_back({{"name", axis.name}, {"size", axis.size}});
  return json;
}

void check(const Mesh& mesh) {
  std::set<std::vector<int>> taken;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const std::vector<int> coordinates = mesh.coordinates_of(rank);
    if (!taken.insert(coordinates).second || mesh.rank_at(coordinates) != rank) {
      throw Error(ErrorCode::internal, "plan",
                  fmt::format("mesh coordinate ({}) does not belong to rank {} alone",
                              fmt::join(coordinates, ", "), rank));
    }
  }
}

void check_world(const Mesh& mesh, int world_size) {
  const int ranks = mesh.world_size();
  if (ranks == world_size) return;
  std::vector<std::string> sizes;
  for (const MeshAxis& axis : mesh.axes())
    sizes.push_back(fmt::format("{} {}", axis.name, axis.size));
  const std::string product = fmt::format("{}", fmt::join(sizes, " x "));
  throw Error(ErrorCode::invalid_argument, "plan",
              ranks < world_size
                  ? fmt::format("the mesh {} has {} ranks, and the world has {}: ranks {} to {} "
                                "would be in no group",
                                product, ranks, world_size, ranks, world_size - 1)
                  : fmt::format("the mesh {} has {} ranks, and the world has only {}", product,
                                ranks, world_size),
              fmt::format("axes whose sizes multiply to {}", world_size));
}

void check_group(const std::vector<int>& ranks, int world_size) {
  const auto refuse = [](const std::string& what, std::string_view remedy) {
    throw Error(ErrorCode::invalid_argument, "plan", what, remedy);
  };
  if (ranks.empty()) refuse("a group of no ranks", "at least one rank");
  for (size_t place = 0; place < ranks.size(); ++place) {
    const int rank = ranks[place];
    if (rank < 0 || rank >= world_size)
      refuse(fmt::format("rank {} of a group is outside the world of {} ranks", rank, world_size),
             fmt::format("ranks from 0 to {}", world_size - 1));
    const auto first = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    if (first < static_cast<ptrdiff_t>(place))
      refuse(fmt::format("rank {} is listed twice in a group, at places {} and {}", rank, first,
                         place),
             "each rank once");
  }
}

}  // namespace trireme::plan
