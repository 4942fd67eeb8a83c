// The autograd engine of the process, which asks code of ours where LibTorch has hooks for Python
// only. It is LibTorch's own engine in everything else, so gradients are the same.
#pragma once
#include <trireme/tensor/cpu_allocator.h>
#include <functional>
#include <memory>

namespace torch::autograd {
struct SavedVariableHooks;
}

namespace trireme {

// The functions that the engine asks for the calling thread; null: none.
struct ThreadsAutograd {
  // Called for each tensor that an operation saves. May return null.
  std::unique_ptr<torch::autograd::SavedVariableHooks> (*saved_hooks)() = nullptr;
  // Called when a backward without create_graph begins, unless an AllocationScope is open. Its
  // tensors are offered to the result first, which may be null. On CPU, backward runs on the
  // thread that calls it.
  std::shared_ptr<AllocationSource> (*gradient_memory)() = nullptr;
  // Called when a backward begins that leaves gradients, unless this thread is inside another one.
  // What it returns is called when that backward has ended, well or by an error.
  std::function<void()> (*backward_begins)() = nullptr;
};
ThreadsAutograd& threads_autograd();

// Makes it the engine of the process from now on; later calls do nothing. Returns false, and
// changes nothing, if the process has another engine than LibTorch's own, such as that of Python.
// Any thread.
bool install_autograd_engine();

}  // namespace trireme
