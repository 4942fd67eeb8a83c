// The callables that a pickle may name where Python would call them.
#pragma once
#include <string_view>

namespace trireme::checkpoint {

// Whether it is a class of TorchScript, which is none of a module in Python.
bool is_of_torchscript(std::string_view module, std::string_view name);
// Whether `module`.`name` makes tensors or plain values and can do nothing else: those that state
// dicts, TorchScript and torch.save() of plain data hold.
bool makes_plain_data(std::string_view module, std::string_view name);
// Whether it is one of them that is Python's. Such a callable asks its arguments for their items
// or their text, which runs code of an argument that is an object of a class.
bool is_of_python(std::string_view module, std::string_view name);
// Whether it makes one plain value: a text, a number, a time. Its arguments are such values.
bool makes_value(std::string_view module, std::string_view name);
// Whether it is a class of Python or PyTorch of which training states have objects: layers,
// optimizers, argparse.Namespace. A file may make one without arguments and set its attributes.
bool is_class_of_state(std::string_view module, std::string_view name);
// Whether it is a class of the programme that wrote the file. Such a module is neither Python's,
// nor PyTorch's, nor that of a package which comes with them, so there is no code to call here.
// `is_called` tells a call, which a function could take, from the making of an object.
bool is_class_of_programme(std::string_view module, std::string_view name, bool is_called);
// Whether layers have torch.`name` as an attribute, to which a pickle comes by getattr().
bool is_function_of_torch(std::string_view name);
// Whether Python or PyTorch may call an attribute of this name, whatever object has it.
bool is_name_of_method(std::string_view name);
// Whether a file may name it without a call: all of these, functions of the programme, types of
// PyTorch and NumPy, and the functions of PyTorch that layers have as attributes.
bool may_be_named(std::string_view module, std::string_view name);

}  // namespace trireme::checkpoint
