// Reads the pickles in PyTorch's files: containers, numbers, text, tensors, and objects by their
// attributes.
//
// Protocol: Lib/pickletools.py of CPython. Nothing is called: for an object that a file would
// construct, the class's name, the arguments and the state are kept.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
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
  int64_t integer = 0;             // boolean, integer; global: the length of "module".
  std::string text;                // text; global and object: "module.name".
  std::vector<PickleValue> items;  // list; also tuples and sets.
  std::vector<std::pair<PickleValue, PickleValue>> entries;  // dict
  PickleValue arguments = nullptr;                           // object: a list; persistent: its id.
  PickleValue state = nullptr;                               // object: may be null.
};

// The callable of tensors with attributes, of buffers and of subclasses: its arguments are another
// callable, a type, and the arguments for that callable.
constexpr std::string_view kRebuildFromType = "torch._tensor._rebuild_from_type_v2";

struct Pickle {
  // All nodes, in one container: their destruction needs no recursion, and cycles do no harm.
  std::deque<PickleNode> nodes;
  PickleValue root = nullptr;
};

// `where` names the file in messages. Throws Error(corrupt) for a pickle that is cut off or
// malformed, and Error(unsupported) for other opcodes, or naming what the file would call in
// Python, unless it makes plain data or is a class of the file's own programme
// (pickle_callables.h).
Pickle read_pickle(std::span<const std::byte> bytes, const std::string& where);

}  // namespace trireme::checkpoint
