// The work of engines at the end of a backward that the user's own code called.
#pragma once
#include <functional>

namespace trireme {

// Runs in backward, in a hook. Calls `finish` at the end of the backward under way, on the thread
// of autograd that ends it. All engines that it has reached finish in the order of their numbers,
// so that no two ranks wait for each other. A backward that ends by an error calls nothing.
void at_end_of_backward(int engine, std::function<void()> finish);
// The engine takes no part in the backward under way any more, or in one that an error ended.
void forget_backward(int engine);

}  // namespace trireme
