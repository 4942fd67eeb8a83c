// A group of which only the first rank exists, for a process that measures alone a part of a model
// whose ranks would communicate.
#pragma once
#include <trireme/comm/group.h>
#include <memory>

namespace trireme::comm {

// The first rank of `size`. Collectives and receives return at once with tensors of the right
// form. Their values have no meaning: they are this rank's own ones, or zeros.
std::shared_ptr<Group> make_lone_rank(int size);

}  // namespace trireme::comm
