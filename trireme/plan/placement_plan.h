// Which parameters live on which parameter server, and which servers have copies of them. Pure.
//
// The flattened tensors are cut into pieces, and each piece lives on one server. Large tensors are
// cut so that servers get equally many bytes, also if one tensor has most of the model.
#pragma once
#include <trireme/base/json.h>
#include <trireme/plan/tensor_spec.h>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::plan {

struct PlacementFacts {
  std::vector<TensorSpec> tensors;  // The trained tensors, by unique names.
  int servers = 1;
  // The servers that have each piece: its own one and those that follow it in the chain of copies
  // (van Renesse, Schneider 2004, "Chain Replication"). 0: two, if there are two servers.
  int replication = 0;
};

// Elements `from` to `from + count` of a flattened tensor.
struct ServerPiece {
  int tensor = 0;
  int64_t from = 0, count = 0;
  int server = 0;
  bool operator==(const ServerPiece&) const = default;
};

struct PlacementPlan {
  PlacementFacts facts;             // With the number of copies.
  std::vector<ServerPiece> pieces;  // In the order of tensors and elements.

  int64_t bytes(const ServerPiece& piece) const;
  std::vector<int64_t> bytes_of_servers() const;  // [server], without copies for others.
  double imbalance() const;  // The bytes of the largest server, of the mean. 1 without bytes.
  // The servers that have the pieces of `server`, itself first. A push goes along the chain from
  // its first living server.
  std::vector<int> chain(int server) const;
  std::string describe() const;  // A line for each server.
  Json to_json() const;
  std::string digest() const;  // Equal plans have equal digests.
};

// Throws Error(invalid_argument) naming the value: no server, more copies than servers, a tensor
// twice or without a shape that can be.
PlacementPlan plan_placement(PlacementFacts facts);

// Proves that every element lives on exactly one server, that the chain of each server names
// different ones, and that no server has more than an even share and one piece. Throws
// Error(internal) naming the piece or the server.
void check(const PlacementPlan& plan);

}  // namespace trireme::plan
