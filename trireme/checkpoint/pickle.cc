#include <trireme/checkpoint/pickle.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/checkpoint/pickle_callables.h>
#include <map>

namespace trireme::checkpoint {
namespace {

using Kind = PickleNode::Kind;

// The limit for a class's name, so that a file cannot cause many copies of a long name.
constexpr size_t kLongestName = 1000;

constexpr std::string_view kPartial = "functools.partial";

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
    for (const PickleNode& node : pickle_.nodes)
      if (node.kind == Kind::global && !holds(may_be_named, node))
        refuse(fmt::format("names {}, which is neither a tensor nor a plain value", node.text));
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
    if (!holds(makes_plain_data, callable) || callable.text.starts_with("__torch__")) return;
    const bool is_value = holds(makes_value, callable);
    for (const PickleValue argument : arguments) {
      const bool is_object = argument->kind == Kind::object;
      const bool fits =
          is_object ? (is_value || holds(is_of_python, callable)
                           ? holds(makes_value, *argument)
                           : holds(makes_plain_data, *argument) && argument->text != kPartial)
                    : !is_value || argument->kind <= Kind::text;
      if (fits) continue;
      refuse_names();
      refuse(fmt::format("calls {} with {}, which makes more than tensors and plain values",
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
        refuse_names();
        refuse(fmt::format("calls {} by {}, which rebuilds only tensors", arguments[0]->text,
                           kRebuildFromType));
      }
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
    refuse_code(*callable,
                makes_object || (arguments->items.empty() && holds(is_class_of_state, *callable)));
    refuse_calls(*callable, arguments->items);
    refuse_objects(*callable, arguments->items);
    const PickleValue object =
        make(callable->text == "collections.OrderedDict" ? Kind::dict : Kind::object);
    object->text = callable->text;
    object->integer = callable->integer;
    object->arguments = arguments;
    push(object);
  }
  // Python gives the values of NEWOBJ_EX's dict by name. They are arguments as the others.
  void construct_by_name() {
    const PickleValue names = pop(), arguments = pop();
    if (names->kind != Kind::dict || arguments->kind != Kind::list)
      fail("it constructs a value without arguments");
    push_list(arguments->items);
    for (const auto& [name, value] : names->entries) top()->items.push_back(value);
    construct(true);
  }
  // Python's pickles set attributes once, behind the items. Whatever a file sends to an object
  // that has attributes already goes to a function that it chose: `append` or `__setstate__`.
  PickleValue top_without_state() {
    const PickleValue target = top();
    const bool has_attributes =
        target->state != nullptr || target->text == kRebuildFromType ||
        (target->kind == Kind::object && target->text.starts_with("torch._utils._rebuild"));
    if (has_attributes) {
      refuse_names();
      refuse(
          fmt::format("changes a {} that has attributes, which calls one of them", target->text));
    }
    return target;
  }
  // The attributes of a dict (PyTorch's _metadata) contain no tensors.
  void build() {
    const PickleValue state = pop(), target = top_without_state();
    if (state->kind == Kind::object && target->kind == Kind::object &&
        !holds(is_class_of_programme, *target, false) && !target->text.starts_with("__torch__")) {
      refuse_names();
      refuse(fmt::format("gives {} the state {}, which is no plain value", target->text,
                         state->text));
    }
    if (target->text == kPartial) {  // Its callable, the arguments, and those by name.
      refuse_calls(*target, state->items);
      for (const PickleValue item : state->items) {
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
  std::vector<PickleValue> stack_;
  std::vector<size_t> marks_;
  std::map<uint64_t, PickleValue> memo_;
};

}  // namespace

Pickle read_pickle(std::span<const std::byte> bytes, const std::string& where) {
  return Machine(bytes, where).run();
}

}  // namespace trireme::checkpoint
