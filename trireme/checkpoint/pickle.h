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
  int64_t integer = 0;             // boolean, integer; global and object: length of "module".
  std::string text;                // text; global and object: "module.name".
  std::vector<PickleValue> items;  // list; also tuples and sets, and an object that is a list.
  std::vector<std::pair<PickleValue, PickleValue>> entries;  // dict, and an object that is one.
  PickleValue arguments = nullptr;                           // object: a list; persistent: its id.
  PickleValue state = nullptr;                               // object, dict: may be null.
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
// malformed, and Error(unsupported) for other opcodes, or naming the callable, for a pickle that
// would call more in Python than makers of plain data and classes of the file's own programme, or
// that names other functions of Python (pickle_callables.h).
Pickle read_pickle(std::span<const std::byte> bytes, const std::string& where);

}  // namespace trireme::checkpoint
