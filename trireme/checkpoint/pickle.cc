#include <trireme/checkpoint/pickle.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/checkpoint/pickle_callables.h>
#include <algorithm>
#include <map>
#include <span>

namespace trireme::checkpoint {
namespace {

using Kind = PickleNode::Kind;

// The limit for a class's name, so that a file cannot cause many copies of a long name.
constexpr size_t kLongestName = 1000;

constexpr std::string_view kPartial = "functools.partial";
// Functions that return their argument, as a value of a type.
constexpr std::string_view kOfTorchscript = "torch.jit._pickle.";
// The class by whose attributes pickles name functions such as torch.relu.
constexpr std::string_view kFunctionsOfTorch = "torch._C._VariableFunctionsClass";

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, const std::string& where)
      : bytes_(bytes), where_(where) {}

  Pickle run() {
    for (;;) {
      const auto opcode = static_cast<unsigned char>(number(1));
      if (opcode == '.') break;
      step(opcode);
    }
    pickle_.root = pop();
    refuse_names();
    refuse_methods();
    refuse_states_of_optimizers();
    return std::move(pickle_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::corrupt, "checkpoint",
                fmt::format("{} holds a damaged pickle: {} at byte {}", where_, what, at_),
                "a fresh copy of the file");
  }

  PickleValue make(Kind kind) {
    pickle_.nodes.emplace_back().kind = kind;
    return &pickle_.nodes.back();
  }

  // Each value takes a byte of the file, so only values that it recalls are looked at more often.
  void spend(size_t values) const {
    constexpr uint64_t kOften = 16, kAlways = 1024;
    if ((spent_ += values) > kOften * bytes_.size() + kAlways)
      fail("it uses the same values too often");
  }

  std::span<const std::byte> take(uint64_t count) {
    if (count > bytes_.size() - at_) fail("it ends");
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }
  uint64_t number(int size) {
    uint64_t value = 0;
    int shift = 0;
    for (const std::byte byte : take(static_cast<uint64_t>(size))) {
      value |= static_cast<uint64_t>(byte) << shift;
      shift += 8;
    }
    return value;
  }
  std::string text(uint64_t size) {
    const auto part = take(size);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  std::string line() {
    std::string text_of_line;
    for (char next = 0; (next = static_cast<char>(number(1))) != '\n';) text_of_line += next;
    return text_of_line;
  }

  void push(PickleValue value) { stack_.push_back(value); }
  PickleValue pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back()))
      fail("it takes a value from an empty stack");
    const PickleValue value = stack_.back();
    stack_.pop_back();
    return value;
  }
  PickleValue top() {
    const PickleValue value = pop();
    push(value);
    return value;
  }
  std::vector<PickleValue> pop_to_mark() {
    if (marks_.empty()) fail("it has no mark");
    std::vector<PickleValue> items(stack_.begin() + static_cast<long>(marks_.back()),
                                   stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  void push_list(std::vector<PickleValue> items) {
    const PickleValue list = make(Kind::list);
    list->items = std::move(items);
    push(list);
  }
  void push_tuple(int size) {
    std::vector<PickleValue> items(static_cast<size_t>(size));
    for (auto item = items.rbegin(); item != items.rend(); ++item) *item = pop();
    push_list(std::move(items));
  }
  void push_text(std::string value) {
    const PickleValue node = make(Kind::text);
    node->text = std::move(value);
    push(node);
  }
  void push_integer(int64_t value, Kind kind = Kind::integer) {
    const PickleValue node = make(kind);
    node->integer = value;
    push(node);
  }
  void push_global(const std::string& module, const std::string& name) {
    if (module.size() + name.size() > kLongestName) fail("it has a name that is too long");
    const PickleValue node = make(Kind::global);
    node->text = module + "." + name;
    node->integer = static_cast<int64_t>(module.size());
    push(node);
  }
  void push_long(uint64_t size) {
    if (size > 8) {  // No tensor has such a number. A seed and a UUID have.
      take(size);
      return push(make(Kind::real));
    }
    uint64_t value = number(static_cast<int>(size));
    if (size > 0 && size < 8 && (value >> (8 * size - 1) & 1) != 0)
      value |= ~uint64_t{0} << (8 * size);
    push_integer(static_cast<int64_t>(value));
  }

  void set_items(const std::vector<PickleValue>& items) {
    const PickleValue target = top_without_state();
    // Classes that are dicts, such as a defaultdict, have entries too.
    const bool has_entries = target->kind == Kind::dict || target->kind == Kind::object;
    if (items.size() % 2 != 0 || !has_entries)
      fail("it adds entries to a value that is not a dict");
    for (size_t i = 0; i < items.size(); i += 2)
      target->entries.emplace_back(items[i], items[i + 1]);
  }
  void append(const std::vector<PickleValue>& items) {
    const PickleValue target = top_without_state();
    if (target->kind != Kind::list && target->kind != Kind::object)
      fail("it appends to a value that is not a list");
    target->items.insert(target->items.end(), items.begin(), items.end());
  }
  // Nothing is ever called. But a file that would run code in Python is no model, and its owner
  // should know.
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::unsupported, "checkpoint",
                fmt::format("{}: its pickle {}: no code of a file is run", where_, what),
                "a state dict: torch.save(model.state_dict(), path); and a look at where the file "
                "comes from");
  }
  // Asks `rule` about the callable of a global or of an object.
  template <typename Rule, typename... More>
  static bool holds(Rule rule, const PickleNode& node, More... more) {
    const std::string_view whole = node.text;
    const auto size = static_cast<size_t>(node.integer);
    return rule(whole.substr(0, size), whole.substr(size + 1), more...);
  }
  void refuse_names() const {
    const bool has_getattr = std::ranges::any_of(pickle_.nodes, is_getattr);
    const bool may_have_it = has_getattr && !is_getattr_a_value();
    for (const PickleNode& node : pickle_.nodes)
      if (node.kind == Kind::global && !holds(may_be_named, node) &&
          !(may_have_it && is_getattr(node)))
        refuse(fmt::format("names {}, which is neither a tensor nor a plain value", node.text));
  }
  // The getattr() of names_function_of_torch() may be called so, and be no value of anything.
  bool is_getattr_a_value() const {
    const auto is_it = [](const PickleNode* each) { return each && is_getattr(*each); };
    return is_it(pickle_.root) || std::ranges::any_of(pickle_.nodes, [&](const PickleNode& node) {
             return is_it(node.state) || std::ranges::any_of(node.items, is_it) ||
                    std::ranges::any_of(node.entries, [&](const auto& entry) {
                      return is_it(entry.first) || is_it(entry.second);
                    });
           });
  }
  static bool is_getattr(const PickleNode& name) {
    return name.kind == Kind::global &&
           (name.text == "builtins.getattr" || name.text == "__builtin__.getattr");
  }
  // Python calls methods of what a file gives an object: Optimizer.__setstate__() calls
  // defaults.setdefault(). So no function has the name of a method, in any dict, because an entry
  // of a dict becomes an attribute in many ways. A key that is an object may be any text.
  void refuse_methods() const {
    for (const PickleNode& node : pickle_.nodes)
      for (const auto& [key, value] : node.entries) {
        const bool is_text = key->kind == Kind::text;
        const bool is_function = value->kind == Kind::global || value->text == kPartial;
        if (is_function &&
            (key->kind == Kind::object || (is_text && is_name_of_method(key->text))))
          refuse(fmt::format("has {} as the method {} of an object", value->text,
                             is_text ? key->text : "of a name that it computes"));
        // Layers have parts with such names as `values`, but none with these.
        const bool is_layer = value->kind == Kind::object && holds(is_class_of_state, *value);
        if (is_text && is_layer &&
            (key->text == "append" || key->text == "extend" || key->text.starts_with("__")))
          refuse(fmt::format("has {} as the method {} of an object", value->text, key->text));
        if (is_text && value->kind != Kind::text &&
            (key->text == "__dict__" || key->text == "__path__" || key->text == "__class__"))
          refuse(fmt::format("sets {} of an object", key->text));
      }
  }
  // An optimizer calls methods of its `state`, `defaults` and `param_groups`. A layer in their
  // place would find its parts by those names, so they must be dicts and lists.
  void refuse_states_of_optimizers() const {
    for (const PickleNode& node : pickle_.nodes)
      if (node.kind == Kind::object && node.text.starts_with("torch.optim.") && node.state)
        refuse_state_of_optimizer(node);
  }
  void refuse_state_of_optimizer(const PickleNode& optimizer) const {
    const auto refuse_other = [&](std::string_view what) {
      refuse(fmt::format("gives {} other {} than dicts and lists", optimizer.text, what));
    };
    const PickleNode& state = *optimizer.state;
    if (state.kind != Kind::dict && state.kind != Kind::none) refuse_other("attributes");
    spend(state.entries.size());
    for (const auto& [key, value] : state.entries) {
      if (key->kind == Kind::object) refuse_other("names");
      const bool has_groups = key->text == "param_groups";
      if (has_groups) spend(value->items.size());
      if (!has_groups && key->text != "state" && key->text != "defaults") continue;
      if (!is_container(value) || (has_groups && !std::ranges::all_of(value->items, is_container)))
        refuse_other(key->text);
    }
  }
  static bool is_container(const PickleNode* node) {
    return node->kind == Kind::dict || node->kind == Kind::list ||
           (node->kind == Kind::object && node->text.starts_with("collections."));
  }
  // The name of something that no file may name says more than `what`.
  [[noreturn]] void refuse_after_names(const std::string& what) const {
    refuse_names();
    refuse(what);
  }
  void refuse_code(const PickleNode& callable, bool may_make_object) const {
    if (holds(makes_plain_data, callable) ||
        holds(is_class_of_programme, callable, !may_make_object) ||
        (may_make_object && holds(is_class_of_state, callable)))
      return;
    refuse(fmt::format("calls {}, which makes more than tensors and plain values", callable.text));
  }
  // A callable that makes plain data may ask an object of a class for its length or its text, and
  // the file chooses the attributes of that object.
  void refuse_objects(const PickleNode& callable,
                      const std::vector<PickleValue>& arguments) const {
    if (!holds(makes_plain_data, callable) || holds(is_of_torchscript, callable)) return;
    const bool is_value = holds(makes_value, callable);
    for (const PickleValue argument : arguments) {
      if (callable.text.starts_with(kOfTorchscript) && argument->kind == Kind::global)
        refuse_after_names(fmt::format("calls {} with {}", callable.text, argument->text));
      const bool is_object = argument->kind == Kind::object;
      const bool fits =
          is_object ? (is_value || holds(is_of_python, callable)
                           ? holds(makes_value, *argument)
                           : holds(makes_plain_data, *argument) && argument->text != kPartial)
                    : !is_value || argument->kind <= Kind::text;
      if (fits) continue;
      refuse_after_names(
          fmt::format("calls {} with {}, which makes more than tensors and plain values",
                      callable.text, argument->text.empty() ? "a container" : argument->text));
    }
  }
  // Some callables call one of their arguments.
  void refuse_calls(const PickleNode& callable, const std::vector<PickleValue>& arguments) const {
    if (callable.text == kRebuildFromType) {
      if (arguments.size() < 3 || arguments[0]->kind != Kind::global)
        fail("a tensor lacks an argument");
      refuse_code(*arguments[0], false);
      if (!arguments[0]->text.starts_with("torch._utils._rebuild")) {
        refuse_after_names(fmt::format("calls {} by {}, which rebuilds only tensors",
                                       arguments[0]->text, kRebuildFromType));
      }
      spend(arguments[2]->items.size());
      refuse_objects(*arguments[0], arguments[2]->items);
    } else if (callable.text == kPartial) {
      if (arguments.empty() || arguments[0]->kind != Kind::global)
        refuse(fmt::format("calls {} without a callable's name", kPartial));
      refuse_code(*arguments[0], true);
      if (arguments[0]->text == kPartial || arguments[0]->text == kRebuildFromType)
        refuse(fmt::format("calls {} by {}", arguments[0]->text, kPartial));
    } else if (callable.text.starts_with("numpy.random._pickle.") && arguments.size() > 1 &&
               arguments[1]->text != "numpy.random._pickle.__bit_generator_ctor") {
      refuse(fmt::format("calls {} by {}", arguments[1]->text, callable.text));
    }
  }
  // `makes_object` tells Python's NEWOBJ, which takes classes only, from a call.
  void construct(bool makes_object) {
    const PickleValue arguments = pop(), callable = pop();
    if (arguments->kind != Kind::list || callable->kind != Kind::global)
      fail("it constructs a value that is not a class");
    if (names_function_of_torch(*callable, arguments->items)) return;
    spend(arguments->items.size());
    refuse_code(*callable,
                makes_object || (arguments->items.empty() && holds(is_class_of_state, *callable)));
    refuse_calls(*callable, arguments->items);
    refuse_objects(*callable, arguments->items);
    const PickleValue object =
        make(callable->text == "collections.OrderedDict" ? Kind::dict : Kind::object);
    object->text = callable->text;
    object->integer = callable->integer;
    object->arguments = arguments;
    take_items(arguments->items, *object);
    push(object);
  }
  // Pickles of torch.relu as an attribute call getattr(), which gives a function that may be
  // named.
  bool names_function_of_torch(const PickleNode& callable,
                               const std::vector<PickleValue>& arguments) {
    const bool is_name =
        is_getattr(callable) && arguments.size() == 2 && arguments[0]->kind == Kind::global &&
        arguments[0]->text == kFunctionsOfTorch && arguments[1]->kind == Kind::text &&
        is_function_of_torch(arguments[1]->text);
    if (is_name) push_global("torch.nn.functional", arguments[1]->text);
    return is_name;
  }
  // A dict may get its entries by a call, and a list its items.
  void take_items(const std::vector<PickleValue>& arguments, PickleNode& object) const {
    const std::string_view text = object.text;
    const std::string_view name = text.substr(text.rfind('.') + 1);
    if (!holds(is_of_python, object) || arguments.empty()) return;
    for (const PickleValue each : arguments) spend(each->items.size() + each->entries.size());
    if (name == "list" || name == "tuple" || name == "set" || name == "frozenset" ||
        name == "deque")
      for (const PickleValue each : arguments)
        object.items.insert(object.items.end(), each->items.begin(), each->items.end());
    if (name != "dict" && name != "OrderedDict" && name != "defaultdict" && name != "Counter")
      return;
    for (const PickleValue each : arguments) {
      object.entries.insert(object.entries.end(), each->entries.begin(), each->entries.end());
      for (const PickleValue pair : each->items) {
        if (pair->items.size() != 2)
          refuse_after_names(fmt::format("calls {} with other items than pairs", text));
        object.entries.emplace_back(pair->items[0], pair->items[1]);
      }
    }
  }
  // Python gives the values of NEWOBJ_EX's dict by name. They are arguments as the others.
  void construct_by_name() {
    const PickleValue names = pop(), arguments = pop();
    if (names->kind != Kind::dict || arguments->kind != Kind::list)
      fail("it constructs a value without arguments");
    spend(arguments->items.size() + names->entries.size());
    push_list(arguments->items);
    for (const auto& [name, value] : names->entries) top()->items.push_back(value);
    construct(true);
  }
  // Python's pickles set attributes once, behind the items. An item or a state for an object that
  // has attributes already goes to a function that the file chose: `append` or `__setstate__`.
  PickleValue top_without_state() {
    const PickleValue target = top();
    const bool has_attributes =
        target->state != nullptr || target->text == kRebuildFromType ||
        (target->kind == Kind::object && (target->text.starts_with("torch._utils._rebuild") ||
                                          target->text.starts_with(kOfTorchscript)));
    if (has_attributes) {
      refuse_after_names(
          fmt::format("changes a {} that has attributes, which calls one of them", target->text));
    }
    return target;
  }
  // Attributes of a class would be those of all its objects, also of those that other files make.
  // And the state that a name has, such as the dict of a module's functions, is not of this file.
  void refuse_state_of_a_name(const PickleNode& state, const PickleNode& target) const {
    if (target.kind == Kind::global)
      refuse_after_names(fmt::format("sets attributes of {} itself", target.text));
    const auto is_name = [](const PickleNode* each) { return each->kind == Kind::global; };
    // Python takes two values for the attributes and the slots of an object, and the first of a
    // partial's is its callable.
    const bool is_of_programme =
        target.kind == Kind::object && holds(is_class_of_programme, target, false);
    const auto parts =
        std::span(state.items)
            .subspan(target.text == kPartial ? std::min<size_t>(1, state.items.size()) : 0);
    const bool has_name =
        state.kind == Kind::list && !is_of_programme && std::ranges::any_of(parts, is_name);
    if (is_name(&state) || has_name)
      refuse_after_names(fmt::format("takes the attributes of {} from a name", target.text));
    if (target.kind == Kind::object && target.text == "numpy.dtype" &&
        !is_state_of_plain_dtype(target, state))
      refuse_after_names("gives a numpy.dtype fields, or flags that are not its own");
    // A layer takes pairs too.
    if (state.kind == Kind::list && target.kind == Kind::object &&
        target.text != "random.Random" && holds(is_class_of_state, target) &&
        !is_dict_with_slots(state))
      refuse_after_names(fmt::format("gives {} a state that is no dict", target.text));
  }
  static bool is_dict_with_slots(const PickleNode& state) {
    // A dict of two keys would be a pair.
    return state.items.size() == 2 && std::ranges::all_of(state.items, [](const auto* each) {
             return each->kind == Kind::none ||
                    (each->kind == Kind::dict &&
                     std::ranges::all_of(each->entries, [](const auto& entry) {
                       return entry.first->kind == Kind::text;
                     }));
           });
  }
  // Fields may lie outside of the memory of a value. The flags of Python's objects are 63, so that
  // no bytes of a file become pointers.
  static bool is_state_of_plain_dtype(const PickleNode& dtype, const PickleNode& state) {
    const std::vector<PickleValue>&items = state.items, &arguments = dtype.arguments->items;
    const auto is_none = [&](size_t part) {
      return items.size() > part && items[part]->kind == Kind::none;
    };
    if (!is_none(2) || !is_none(3) || !is_none(4) || arguments.empty()) return false;
    const bool is_of_objects = arguments[0]->text.find('O') != std::string::npos;
    return !is_of_objects || (items.size() > 7 && items[7]->integer == 63);
  }
  // The attributes of a dict (PyTorch's _metadata) contain no tensors. They are kept, because they
  // may be set once.
  void build() {
    const PickleValue state = pop(), target = top_without_state();
    if (target->kind != Kind::object && target->kind != Kind::dict && target->kind != Kind::global)
      fail("it gives attributes to a plain value");
    spend(state->items.size());
    refuse_state_of_a_name(*state, *target);
    const bool is_by_call = state->kind == Kind::object;
    const bool takes_any =
        target->kind == Kind::object &&
        (holds(is_class_of_programme, *target, false) || holds(is_of_torchscript, *target));
    if (is_by_call && (!takes_any || holds(is_of_python, *state))) {
      refuse_after_names(fmt::format("gives {} the state {}, which is no plain value",
                                     target->text, state->text));
    }
    if (target->text == kPartial) {  // Its callable, the arguments, and those by name.
      refuse_calls(*target, state->items);
      for (const PickleValue item : state->items) {
        spend(item->items.size() + item->entries.size());
        refuse_objects(*target, item->items);
        for (const auto& [name, value] : item->entries) refuse_objects(*target, {value});
      }
    }
    target->state = state;
  }

  void step(unsigned char opcode) {
    if (does_value(opcode) || does_container(opcode) || does_object(opcode) || does_memo(opcode))
      return;
    throw Error(ErrorCode::unsupported, "checkpoint",
                fmt::format("{} has the pickle opcode {:#04x}", where_, opcode),
                "a state dict of tensors: torch.save(model.state_dict(), path)");
  }
  // Each of these executes the opcode if it is of its kind, and returns whether it is.
  bool does_value(unsigned char opcode) {
    switch (opcode) {
      case 0x80: number(1); break;  // PROTO
      case 0x95: number(8); break;  // FRAME
      case '0': pop(); break;
      case 'N': push(make(Kind::none)); break;
      case 0x88: push_integer(1, Kind::boolean); break;
      case 0x89: push_integer(0, Kind::boolean); break;
      case 'K': push_integer(static_cast<int64_t>(number(1))); break;
      case 'M': push_integer(static_cast<int64_t>(number(2))); break;
      case 'J': push_integer(static_cast<int32_t>(number(4))); break;
      case 0x8a: push_long(number(1)); break;
      case 0x8b: push_long(number(4)); break;
      case 'G': number(8), push(make(Kind::real)); break;
      case 'X': push_text(text(number(4))); break;
      case 0x8c: push_text(text(number(1))); break;
      case 0x8d:
      case 0x8e:
      case 0x96: push_text(text(number(8))); break;
      case 'U':
      case 'C': push_text(text(number(1))); break;
      case 'T':
      case 'B': push_text(text(number(4))); break;
      default: return false;
    }
    return true;
  }
  bool does_container(unsigned char opcode) {
    switch (opcode) {
      case '(': marks_.push_back(stack_.size()); break;
      case '}': push(make(Kind::dict)); break;
      case ']':
      case ')':
      case 0x8f: push_list({}); break;
      case 't':
      case 'l':
      case 0x91: push_list(pop_to_mark()); break;
      case 0x85:
      case 0x86:
      case 0x87: push_tuple(opcode - 0x84); break;
      case 'd': {
        const auto items = pop_to_mark();
        push(make(Kind::dict));
        set_items(items);
        break;
      }
      case 's': {
        const PickleValue value = pop(), key = pop();
        set_items({key, value});
        break;
      }
      case 'u': set_items(pop_to_mark()); break;
      case 'a': append({pop()}); break;
      case 'e':
      case 0x90: append(pop_to_mark()); break;
      default: return false;
    }
    return true;
  }
  bool does_object(unsigned char opcode) {
    switch (opcode) {
      case 'c': {
        const std::string module = line();
        push_global(module, line());
        break;
      }
      case 0x93: {
        const PickleValue name = pop(), module = pop();
        if (name->kind != Kind::text || module->kind != Kind::text) fail("a name is no text");
        push_global(module->text, name->text);
        break;
      }
      case 'R': construct(false); break;
      case 0x81: construct(true); break;
      case 0x92: construct_by_name(); break;
      case 'b': build(); break;
      case 'Q': {
        const PickleValue id = pop(), reference = make(Kind::persistent);
        // A storage: words, a class, and a size. Python calls methods of them.
        spend(id->items.size());
        if (id->kind != Kind::list || std::ranges::any_of(id->items, [](const PickleNode* each) {
              return each->kind > Kind::text && each->kind != Kind::global;
            }))
          refuse_after_names("names a storage by an object");
        reference->arguments = id;
        push(reference);
        break;
      }
      default: return false;
    }
    return true;
  }
  bool does_memo(unsigned char opcode) {
    switch (opcode) {
      case 'q': memo_[number(1)] = top(); break;
      case 'r': memo_[number(4)] = top(); break;
      case 0x94: memo_[memo_.size()] = top(); break;
      case 'h': recall(number(1)); break;
      case 'j': recall(number(4)); break;
      default: return false;
    }
    return true;
  }
  void recall(uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) fail("it recalls a value that it never stored");
    push(found->second);
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  Pickle pickle_;
  uint64_t at_ = 0;
  mutable uint64_t spent_ = 0;
  std::vector<PickleValue> stack_;
  std::vector<size_t> marks_;
  std::map<uint64_t, PickleValue> memo_;
};

}  // namespace

Pickle read_pickle(std::span<const std::byte> bytes, const std::string& where) {
  return Machine(bytes, where).run();
}

}  // namespace trireme::checkpoint
