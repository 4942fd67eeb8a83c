// Reads the pickles in PyTorch's files: containers, numbers, text, tensors, and objects by their
// attributes. No torch.
//
// Protocol: Lib/pickletools.py of CPython. Nothing is called: what a file would construct is kept
// as its class's name, arguments and state.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace trireme::checkpoint {

struct PickleNode;
using PickleValue = PickleNode*;

struct PickleNode {
  enum class Kind {
    none,
    boolean,
    integer,
    real,
    text,
    list,
    dict,
    global,
    object,
    persistent
  } kind = Kind::none;
  int64_t integer = 0;             // boolean, integer
  std::string text;                // text; global and object: "module.name".
  std::vector<PickleValue> items;  // list: also tuples and sets.
  std::vector<std::pair<PickleValue, PickleValue>> entries;  // dict
  PickleValue arguments = nullptr;                           // object: a list; persistent: its id.
  PickleValue state = nullptr;                               // object: may be null.
};

struct Pickle {
  std::deque<PickleNode>
      nodes;  // All of them, so that neither depth nor cycles matter when they go.
  PickleValue root = nullptr;
};

// `where` names the file in messages. Throws Error(corrupt) for what is cut off or malformed,
// Error(unsupported) for other opcodes.
Pickle read_pickle(std::span<const std::byte> bytes, const std::string& where);

}  // namespace trireme::checkpoint
