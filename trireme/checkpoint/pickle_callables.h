// The callables that a pickle may name where Python would call them.
#pragma once
#include <string_view>

namespace trireme::checkpoint {

// Whether `module`.`name` makes tensors or plain values and can do nothing else: those that state
// dicts, TorchScript and torch.save() of plain data hold.
bool makes_plain_data(std::string_view module, std::string_view name);
// Whether it is a class of the programme that wrote the file. Such a module is neither Python's,
// nor PyTorch's, nor that of a package which comes with them, so there is no code to call here.
bool is_class_of_programme(std::string_view module, std::string_view name);

}  // namespace trireme::checkpoint
