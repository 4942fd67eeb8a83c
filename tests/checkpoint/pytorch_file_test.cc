#include <trireme/checkpoint/pytorch_file.h>

#include <gmock/gmock.h>
#include <trireme/checkpoint/pickle.h>
#include <trireme/checkpoint/safetensors_dtype.h>
#include <trireme/checkpoint/zip_archive.h>

#include "../base/expect_error.h"
#include "checkpoint_testing.h"

namespace trireme::checkpoint::pytorch_file_test {
namespace {

using plan::DType;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class PytorchFile : public TemporaryFolder {
 protected:
  // Writes an archive around a pickle, with one storage "0" of 6 floats that count from 0.
  void write(const std::string& pickle) {
    OutputFile file(disk(), path_);
    ZipWriter zip(file);
    const OwnedTensor storage("", {6});
    zip.add("any/data.pkl", std::as_bytes(std::span(pickle)));
    zip.add("any/data/0", storage.bytes);
    zip.finish();
    file.finish();
  }
  static std::string tensor(int offset, const std::string& shape, const std::string& stride,
                            const std::string& type = "FloatStorage") {
    return "ctorch._utils\n_rebuild_tensor_v2\n((X\x07" + std::string(3, '\0') +
           "storagectorch\n" + type + "\nX\x01" + std::string(3, '\0') + "0X\x03" +
           std::string(3, '\0') + "cpuK\x06tQK" + std::string(1, static_cast<char>(offset)) +
           shape + stride + "\x89" + "ccollections\nOrderedDict\n)RtR";
  }
  static std::string dict(const std::string& name, const std::string& value) {
    return "\x80\x02}" + text(name) + value + "s.";
  }
  static std::string text(const std::string& value) {
    return "X" + std::string(1, static_cast<char>(value.size())) + std::string(3, '\0') + value;
  }
  // Writes a dict with a tensor "w", and what `value` makes as "x".
  void write_beside(const std::string& value) {
    write("\x80\x02}" + text("w") + tensor(0, "K\x06\x85", "K\x01\x85") + "s" + text("x") + value +
          "s.");
  }
  // The message of the error for a file with that value.
  std::string refusal(const std::string& value) {
    write_beside(value);
    return message_of(ErrorCode::unsupported, [&] { read_pytorch(path_); });
  }
  std::vector<float> floats_of(const std::string& pickle) {
    write(pickle);
    const auto tensors = read_pytorch(path_);
    std::vector<float> values(tensors.at(0).bytes.size() / 4);
    std::memcpy(values.data(), tensors[0].bytes.data(), tensors[0].bytes.size());
    return values;
  }

  std::string classes_of_archive() const {
    const auto code = ZipReader(path_).read("archive/code/__torch__.py");
    return {reinterpret_cast<const char*>(code.data()), code.size()};
  }

  std::filesystem::path path_ = folder_ / "model.pt";
};

TEST_F(PytorchFile, GivesBackWhatWasWritten) {
  std::vector<OwnedTensor> tensors;
  for (const auto& [dtype, name] : kSafetensorsDTypes)
    tensors.emplace_back("layer." + std::string(to_string(dtype)), std::vector<int64_t>{3, 5},
                         dtype, 7);
  tensors.emplace_back("scalar", std::vector<int64_t>{});
  tensors.emplace_back("empty", std::vector<int64_t>{0, 4});
  tensors.emplace_back("flag", std::vector<int64_t>{}, DType::boolean, 1);
  tensors.emplace_back("no flags", std::vector<int64_t>{2, 0}, DType::boolean);
  tensors.emplace_back("eighth", std::vector<int64_t>{}, DType::float8_e5m2, 60);
  std::vector<TensorView> views;
  for (const auto& tensor : tensors) views.push_back(tensor.view());
  write_pytorch(path_, views);
  const auto read = read_pytorch(path_);
  ASSERT_EQ(read.size(), tensors.size());
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].spec.describe(), tensors[i].spec.describe());
    EXPECT_EQ(read[i].spec.name, tensors[i].spec.name);
    EXPECT_EQ(read[i].bytes, tensors[i].bytes);
  }
  EXPECT_THAT(names_in(folder_), ElementsAre("model.pt"));
}

TEST_F(PytorchFile, AnArchiveOfAModuleGivesBackWhatWasWritten) {
  std::vector<OwnedTensor> tensors;
  for (const auto& [dtype, name] : kSafetensorsDTypes)
    tensors.emplace_back("layer.0." + std::string(to_string(dtype)), std::vector<int64_t>{3, 5},
                         dtype, 7);
  tensors.emplace_back("layer.2.weight", std::vector<int64_t>{2});
  tensors.emplace_back("again", std::vector<int64_t>{2});
  tensors.emplace_back("empty", std::vector<int64_t>{0, 4});
  std::vector<plan::TensorSpec> specs;
  for (const auto& tensor : tensors) specs.push_back(tensor.spec);
  write_module_archive(path_, specs, [&](size_t i) { return tensors[i].view().bytes; },
                       {{"again", "layer.2.weight"}}, {"drop"});
  const auto read = read_pytorch(path_);
  ASSERT_EQ(read.size(), tensors.size());
  for (const auto& tensor : tensors) {
    const auto found =
        std::ranges::find(read, tensor.spec.name, [](const auto& each) { return each.spec.name; });
    ASSERT_NE(found, read.end()) << tensor.spec.name;
    EXPECT_EQ(found->spec.describe(), tensor.spec.describe());
    EXPECT_EQ(found->bytes, tensor.bytes);
    // The tensors of a module stand before those of its children.
    EXPECT_EQ(found->tied_to, tensor.spec.name == "layer.2.weight" ? "again" : "");
  }
  const std::string classes = classes_of_archive();
  EXPECT_THAT(classes, testing::HasSubstr("__annotations__[\"1\"]"));
  EXPECT_THAT(classes, testing::HasSubstr("__annotations__[\"drop\"]"));
}

TEST_F(PytorchFile, AnArchiveKeepsATensorWhoseNameIsANumberBesideModules) {
  const OwnedTensor one("a.0", {1}), two("a.2.weight", {2});
  write_module_archive(path_, {one.spec, two.spec},
                       [&](size_t i) { return (i == 0 ? one : two).view().bytes; });
  const std::string classes = classes_of_archive();
  EXPECT_THAT(classes, HasSubstr("__annotations__[\"0\"] = Tensor"));
  EXPECT_THAT(classes, testing::Not(HasSubstr("__annotations__[\"0\"] = __torch__")));
  EXPECT_EQ(read_pytorch(path_).size(), 2u);
}

TEST_F(PytorchFile, ANameThatNoModuleCanHaveIsRefusedBeforeAFileIsWritten) {
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"a..b"}, {".a"}, {"a\"b"}, {"a", "a.b"}, {"training"}}) {
    std::vector<plan::TensorSpec> specs;
    for (const std::string& name : names) specs.push_back({name, {1}, DType::uint8});
    const std::vector<std::byte> one(1);
    EXPECT_TRUE(fails_with(ErrorCode::unsupported, {"no archive of a module can have"}, [&] {
      write_module_archive(path_, specs, [&](size_t) { return std::span(one); });
    }));
    EXPECT_THAT(names_in(folder_), testing::IsEmpty());
  }
}

TEST_F(PytorchFile, PutsStridedTensorsInOrder) {
  EXPECT_THAT(floats_of(dict("w", tensor(0, "K\x02K\x03\x86", "K\x03K\x01\x86"))),
              ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(floats_of(dict("w", tensor(0, "K\x03K\x02\x86", "K\x01K\x03\x86"))),
              ElementsAre(0, 3, 1, 4, 2, 5));  // Transposed.
  EXPECT_THAT(floats_of(dict("w", tensor(2, "K\x02\x85", "K\x02\x85"))), ElementsAre(2, 4));
  EXPECT_THAT(floats_of(dict("w", tensor(5, "K\x03\x85", std::string("K\0\x85", 3)))),
              ElementsAre(5, 5, 5));  // Expanded.
}

TEST_F(PytorchFile, RefusesTensorsBeyondTheirStorage) {
  for (const auto& [shape, stride] :
       {std::pair<std::string, std::string>{"K\x07\x85", "K\x01\x85"},
        {"K\x02\x85", "K\x06\x85"},
        {"K\x02K\x03\x86", "K\x01\x85"},
        {"J\xff\xff\xff\x7f\x85", "J\xff\xff\xff\x7f\x85"},
        {"J\xff\xff\xff\xff\x85", "K\x01\x85"},
        {"K\x02\x85", "J\xff\xff\xff\xff\x85"}}) {
    write(dict("w", tensor(0, shape, stride)));
    EXPECT_TRUE(fails_with(ErrorCode::corrupt, {path_}, [&] { read_pytorch(path_); }));
  }
  write(dict("w", tensor(0, "J\xff\xff\xff\x0f\x85",
                         std::string("K\0\x85", 3))));  // 1 GB out of 24 bytes.
  EXPECT_TRUE(fails_with(ErrorCode::corrupt, {path_}, [&] { read_pytorch(path_); }));
}

TEST_F(PytorchFile, NamesContentThatItCannotRead) {
  write(dict("w", tensor(0, "K\x06\x85", "K\x01\x85", "QUInt8Storage")));
  EXPECT_TRUE(fails_with(ErrorCode::unsupported, {path_, "'w'", "QUInt8Storage"},
                         [&] { read_pytorch(path_); }));
  write(std::string("\x80\x02}.", 4));
  EXPECT_TRUE(fails_with(ErrorCode::unsupported, {"no tensors"}, [&] { read_pytorch(path_); }));
  write(std::string("\x80\x02P1\n.", 6));
  EXPECT_TRUE(fails_with(ErrorCode::unsupported, {"opcode 0x50"}, [&] { read_pytorch(path_); }));
  overwrite(path_, "no zip at all, but long enough to hold an end record");
  EXPECT_TRUE(
      fails_with(ErrorCode::corrupt, {path_, "no list of entries"}, [&] { read_pytorch(path_); }));
}

TEST_F(PytorchFile, RefusesWhatMakesMoreThanPlainData) {
  for (const std::string module_and_name :
       {"builtins\nmap", "itertools\nimap", "site\naddsitedir", "argparse\nFileType",
        "_thread\nstart_new_thread", "torch._utils\nos.system",
        "torch.nn.modules.module\ntorch.load", "__main__\nos.system", "joblib\nload",
        "tornado.process\nSubprocess", "lib-dynload._sqlite3\nConnection"})
    for (const char* const how : {")R", ")\x81"}) {
      std::string name = module_and_name;
      name[name.find('\n')] = '.';
      EXPECT_THAT(refusal("c" + module_and_name + "\n" + how),
                  AllOf(HasSubstr(path_), HasSubstr("its pickle calls " + name + ",")));
    }
  // Functions can have such names, and a class may do more than make an object.
  EXPECT_THAT(refusal("cmy_training\nload\n)R"), HasSubstr("calls my_training.load,"));
  EXPECT_THAT(refusal("ctorch.nn.modules.linear\nLinear\nK\x01\x85R"),
              HasSubstr("calls torch.nn.modules.linear.Linear,"));
  EXPECT_THAT(refusal("ctorch.optim.adam\nadam\n)\x81"), HasSubstr("torch.optim.adam.adam,"));
}

// The attributes by which these files would run code belong to objects that Python asks for their
// text or their length.
TEST_F(PytorchFile, RefusesCodeThatAListedCallableWouldRun) {
  const std::string rebuild = "ctorch._tensor\n_rebuild_from_type_v2\n", type = "ctorch\nTensor\n",
                    system = "cos\nsystem\n", command = "(" + text("echo") + "t";
  EXPECT_THAT(refusal(rebuild + "(" + rebuild + type + "(" + system + type + command + "NtNtR"),
              HasSubstr("names os.system,"));
  EXPECT_THAT(refusal(rebuild + "(" + rebuild + type + "(NNNNtNtR"),
              HasSubstr("calls torch._tensor._rebuild_from_type_v2 by "));
  const std::string partial = "cfunctools\npartial\n";
  const auto layer = [&](const std::string& attribute) {
    return "ctorch.nn.modules.linear\nIdentity\n)\x81}(" + text("extra_repr") + attribute + "ub";
  };
  EXPECT_THAT(
      refusal("c__builtin__\nstr\n(" + layer(partial + "(" + system + text("echo") + "tR") + "tR"),
      HasSubstr("calls os.system,"));
  EXPECT_THAT(refusal(partial + "(cbuiltins\nint\ntR(" + system + ")}Ntb"),
              HasSubstr("calls os.system,"));
  EXPECT_THAT(refusal(partial + "(" + rebuild + "tR"), HasSubstr("by functools.partial"));
  EXPECT_THAT(
      refusal("ctorch.torch_version\nTorchVersion\n(" + layer("ccode\ninteract\n") + "t\x81"),
      HasSubstr("names code.interact,"));
  EXPECT_THAT(refusal(layer("ccode\ninteract\n")), HasSubstr("names code.interact,"));
  for (const std::string& value : {layer("N"), "]" + layer("N") + "a"})
    EXPECT_THAT(refusal("c__builtin__\nstr\n(" + value + "tR"),
                HasSubstr("calls __builtin__.str with "));
  EXPECT_THAT(refusal("c__builtin__\nlist\n(" + layer("N") + "tR"),
              HasSubstr("calls __builtin__.list with torch.nn.modules.linear.Identity,"));
  EXPECT_THAT(refusal("ctorch._utils\n_rebuild_parameter\n(" + layer("N") + "\x89}tR"),
              HasSubstr("with torch.nn.modules.linear.Identity,"));
  EXPECT_THAT(refusal("ctorch.optim.adam\nAdam\n)\x81" + layer("N") + "b"),
              HasSubstr("gives torch.optim.adam.Adam the state "));
  // Python looks for `append` and `__setstate__` among the attributes too.
  for (const std::string maker :
       {"cargparse\nNamespace\n)\x81", "ccollections\nOrderedDict\n)R"}) {
    const std::string object = maker + "}" + text("append") + "cmy_training\nrun\nsb";
    EXPECT_THAT(refusal(object + text("echo") + "b"), HasSubstr("that has attributes"));
    EXPECT_THAT(refusal(object + text("echo") + "a"), HasSubstr("that has attributes"));
  }
  EXPECT_THAT(refusal(tensor(0, "K\x06\x85", "K\x01\x85") + "}b"), HasSubstr("has attributes"));
  // The class of all Namespaces would get an `append` that runs a text, or opens a file by it.
  const std::string name_space = "cargparse\nNamespace\n";
  EXPECT_THAT(refusal(name_space + "N}" + text("append") + "cmy_training\nrun\ns\x86" + "b"),
              HasSubstr("sets attributes of argparse.Namespace itself"));
  const std::string relu = "ctorch.nn.functional\nrelu\n";
  for (const std::string& state : {relu, "(N" + relu + "t"})
    EXPECT_THAT(refusal(name_space + ")\x81" + state + "b"),
                HasSubstr("takes the attributes of argparse.Namespace from a name"));
  for (const std::string each :
       {"torch.hub\nload", "torch\nload", "numpy\nsave", "torch.utils.collect_env\nrun",
        "torch.nn.functional\nos.system", "torch.nn.functional\n__builtins__",
        "torch.nn.functional\nwarnings", "torch.nn.functional\ndataclasses",
        "torch.nn.modules.activation\nF", "torch\nPyTorchFileWriter",
        "lib-dynload._posixsubprocess\nfork_exec", "site-packages.pip\nmain"})
    EXPECT_THAT(refusal("c" + each + "\n"), HasSubstr("its pickle names "));
  // Python stores at the number of entries, whatever lies there.
  EXPECT_THAT(refusal(text("my") + "q\x01" + "0" + text("os") + "\x94" + "0h\x01" +
                      text("system") + "\x93"),
              HasSubstr("names os.system,"));
}

// Optimizer.__setstate__() calls defaults.setdefault(), and layers find attributes in dicts.
TEST_F(PytorchFile, RefusesFunctionsWithTheNamesOfMethods) {
  const std::string run = "cmy_training\nrun\n", space = "cargparse\nNamespace\n",
                    layer = "ctorch.nn.modules.linear\nIdentity\n",
                    optimizer = "ctorch.optim.optimizer\nOptimizer\n";
  const auto with = [](const std::string& maker, const std::string& name,
                       const std::string& value) {
    return maker + ")\x81}" + text(name) + value + "sb";
  };
  for (const std::string& value : {run, "cfunctools\npartial\n(" + run + "tR"})
    for (const std::string& object :
         {with(space, "setdefault", value), with(layer, "__torch_function__", value),
          with(layer, "_modules", "}" + text("values") + value + "s"),
          // The name is a text that a call makes.
          space + ")\x81}cbuiltins\nstr\n(" + text("get") + "tR" + value + "sb"})
      EXPECT_THAT(refusal(object), AllOf(HasSubstr("as the method"), HasSubstr("of an object")));
  for (const std::string name : {"state", "defaults", "param_groups"})
    for (const std::string& value : {with(layer, "x", "N"), with(space, "x", "N")})
      EXPECT_THAT(refusal(with(optimizer, name, value)),
                  HasSubstr("other " + name + " than dicts"));
  EXPECT_THAT(refusal(with(optimizer, "param_groups", "(" + with(layer, "x", "N") + "l")),
              HasSubstr("other param_groups than dicts"));
  EXPECT_THAT(refusal("(" + text("storage") + "ctorch\nFloatStorage\n" + text("1") +
                      with(space, "x", "N") + "K\x02tQ"),
              HasSubstr("names a storage by an object"));
  EXPECT_THAT(refusal("cbuiltins\ntuple\n((NltRQ"), HasSubstr("names a storage by an object"));
  for (const std::string& usual :
       {with(space, "activation", run), with(space, "values", "]"),
        with(layer, "_modules", "}" + text("values") + with(layer, "x", "N") + "s"),
        with(optimizer, "state", "ccollections\ndefaultdict\ncbuiltins\ndict\n\x85R"),
        with(optimizer, "param_groups", "(}l")}) {
    write_beside(usual);
    EXPECT_EQ(read_pytorch(path_).size(), 1u);
  }
}

// Ways by which a file could give Python's modules other functions, or have it call some.
TEST_F(PytorchFile, RefusesToChangeWhatIsNotOfTheFile) {
  const std::string run = "cmy_training\nrun\n", space = "cargparse\nNamespace\n",
                    layer = "ctorch.nn.modules.linear\nIdentity\n";
  for (const std::string name : {"__main__\n__dict__", "my_training\n__path__", "xxlimited\nXxo",
                                 "__main__.subprocess\nPopen"})
    EXPECT_THAT(refusal("c" + name + "\n"), HasSubstr("its pickle names ")) << name;
  // These return their argument, so that it would be changed.
  const std::string same = "ctorch.jit._pickle\nrestore_type_tag\n";
  EXPECT_THAT(refusal(same + "(" + run + text("") + "tR"), HasSubstr("restore_type_tag with "));
  EXPECT_THAT(refusal(same + "(}" + text("") + "tR" + text("k") + "K\x01s"),
              HasSubstr("that has attributes"));
  // A key may be a text by any call, and entries may be the pairs of one.
  const std::string key = "cnumpy._core.multiarray\nscalar\n(cnumpy\nstr_\ntR";
  EXPECT_THAT(refusal(space + ")\x81}" + key + run + "sb"), HasSubstr("as the method"));
  const std::string pair = "(" + text("get") + run + "t";
  for (const std::string maker : {"ccollections\nOrderedDict\n", "cbuiltins\ndict\n"}) {
    EXPECT_THAT(refusal(maker + "((" + pair + "ltR"), HasSubstr("as the method"));
    EXPECT_THAT(refusal(maker + "((K\x01ltR"), HasSubstr("with other items than pairs"));
  }
  EXPECT_THAT(refusal(layer + ")\x81(" + pair + "lb"), HasSubstr("a state that is no dict"));
  EXPECT_THAT(refusal(space + ")\x81" + "cbuiltins\ntuple\n((N}ltR" + "b"),
              HasSubstr("gives argparse.Namespace the state "));
  EXPECT_THAT(refusal("ccollections\nOrderedDict\n)R" + std::string("cbuiltins\ntuple\n((N}ltRb")),
              HasSubstr("gives collections.OrderedDict the state "));
  const std::string partial = "cfunctools\npartial\n(cbuiltins\nint\ntR";
  EXPECT_THAT(refusal(partial + "(cbuiltins\nint\n)}" + run + "tb"),
              HasSubstr("takes the attributes of functools.partial from a name"));
  for (const std::string name : {"__dict__", "__path__", "__class__"})
    EXPECT_THAT(refusal("}" + text(name) + "]s"), HasSubstr("sets " + name + " of an object"));
  for (const std::string name : {"append", "extend", "__setstate__"})
    EXPECT_THAT(refusal(space + ")\x81}" + text(name) + layer + ")\x81sb"),
                HasSubstr("as the method " + name));
}

// A pickle may recall its values, which must cost no more than a look at them.
TEST_F(PytorchFile, ValuesThatAreUsedTooOftenAreRefused) {
  std::string items = "(";
  items.append(2000, 'N');
  const std::string start =
      "\x80\x02"
      "cbuiltins\nlist\nq\1" +
      items + "lq\2\x85q\3";
  for (const std::string& use : {std::string("h\1h\3R0"),
                                 std::string("}h\2"
                                             "b0"),
                                 std::string("h\2Q0")}) {
    std::string pickle = start;
    for (int i = 0; i < 2000; ++i) pickle += use;
    const std::string whole = pickle + ".";
    EXPECT_TRUE(fails_with(ErrorCode::corrupt, {"it uses the same values too often"},
                           [&] { read_pickle(std::as_bytes(std::span(whole)), "x"); }));
  }
  for (const std::string name : {"numpy.dtype", "functools.partial"})
    EXPECT_TRUE(fails_with(ErrorCode::corrupt, {"attributes to a plain value"}, [&] {
      write_beside(text(name) + "(NNNNNtb");
      read_pytorch(path_);
    }));
  const std::string pairs =
      "(}" + text("defaults") + "K\1sctorch.nn.modules.linear\nIdentity\n)\x81K\2s}t";
  EXPECT_THAT(refusal("ctorch.optim.optimizer\nOptimizer\n)\x81" + pairs + "b"),
              HasSubstr("torch.optim.optimizer.Optimizer"));
}

TEST_F(PytorchFile, RefusesATensorThatIsLargerThanAnyMemory) {
  // 2^61 + 1 elements of a stride of 0 would be 8 bytes, modulo 2^64.
  for (const std::string& shape : {"\x8a\x08\x01" + std::string(6, '\0') + "\x20\x85",
                                   "\x8a\x08" + std::string(7, '\0') + "\x20\x85"}) {
    write(dict("w", tensor(0, shape, std::string("K\0\x85", 3))));
    EXPECT_TRUE(fails_with(ErrorCode::corrupt, {"model.pt"}, [&] { read_pytorch(path_); }));
  }
}

// Bytes of a file must not become pointers, or values outside of their memory.
TEST_F(PytorchFile, RefusesArraysOfOtherMemory) {
  EXPECT_THAT(refusal("cnumpy\nndarray\n(K\x01\x85tR"), HasSubstr("calls numpy.ndarray,"));
  const auto dtype = [&](const std::string& type, const std::string& subtype,
                         const std::string& fields, const std::string& flags) {
    return "cnumpy\ndtype\n(" + text(type) + "\x89\x88tR(K\x03" + text("|") + subtype + "N" +
           fields + "J\xff\xff\xff\xffJ\xff\xff\xff\xffK" + flags + "tb";
  };
  const std::string none(1, '\0');
  for (const std::string& wrong :
       {dtype("f8", "N", "}", none), dtype("f8", "K\x01", "N", none), dtype("O8", "N", "N", none)})
    EXPECT_THAT(refusal(wrong), HasSubstr("gives a numpy.dtype fields, or flags"));
  for (const std::string& usual : {dtype("f8", "N", "N", none), dtype("O8", "N", "N", "\x3f")}) {
    write_beside(usual);
    EXPECT_EQ(read_pytorch(path_).size(), 1u);
  }
}

// Layers have torch.relu and the like as attributes, which Python writes as calls of getattr().
TEST_F(PytorchFile, ReadsLayersWithFunctionsOfTorch) {
  const auto getattr = [](const std::string& name) {
    return "c__builtin__\ngetattr\n(ctorch._C\n_VariableFunctionsClass\n" + text(name) + "tR";
  };
  for (const std::string name : {"relu", "tanh", "sigmoid"}) {
    write_beside("ctorch.nn.modules.linear\nIdentity\n)\x81}" + text("act") + getattr(name) +
                 "sb");
    EXPECT_EQ(read_pytorch(path_).size(), 1u);
  }
  for (const std::string name : {"from_file", "__class__", "relu.x"})
    EXPECT_THAT(refusal(getattr(name)), HasSubstr("getattr"));
  EXPECT_THAT(refusal("(" + getattr("relu") + "c__builtin__\ngetattr\nt"),
              HasSubstr("names __builtin__.getattr,"));
  EXPECT_THAT(refusal("}" + text("values") + getattr("relu") + "s"), HasSubstr("as the method"));
}

TEST_F(PytorchFile, PassesOverTheObjectsOfTrainingStates) {
  for (const std::string each :
       {"cmy_training\nKind\n)\x81", "cmy_training\nKind\nK\x01\x85R",
        "cmy_training\nKind\n)\x81(ctorch\nfloat32\nK\x01tb",
        "ctorch.nn.modules.linear\nLinear\n)\x81", "ctorch.optim.adam\nAdam\n)\x81",
        "ctorch.amp.grad_scaler\nGradScaler\n)\x81", "cargparse\nNamespace\n)\x81}b",
        "ctypes\nSimpleNamespace\n)R}b", "ctorch._C._nn\ngelu\n", "ctorch\nper_tensor_affine\n",
        "ctorch\nfloat32\n", "cnumpy\nfloat32\n", "ctorch.nn.functional\nrelu\n",
        "cfunctools\npartial\n(ctorch.nn.modules.activation\nReLU\ntR",
        "ccollections\ndefaultdict\ncbuiltins\nlist\n\x85R", "(K\x01K\x02\x91"}) {
    SCOPED_TRACE(each);
    write_beside(each);
    EXPECT_EQ(read_pytorch(path_).size(), 1u);
  }
  for (const std::string& each :
       {"cuuid\nUUID\n)\x81}" + text("int") + "\x8a\x09" + std::string(9, '\1') + "sb",
        "\x8b" + std::string("\x09\0\0\0", 4) + std::string(9, '\1'),
        "\x96" + std::string("\x02\0\0\0\0\0\0\0", 8) + "ab",
        "cmy_training\nKind\n)}" + text("by_name") + "K\x01s\x92",
        std::string("ccollections\ndeque\n)RK\x01") + "a"}) {
    SCOPED_TRACE(each);
    write_beside(each);
    EXPECT_EQ(read_pytorch(path_).size(), 1u);
  }
}

TEST_F(PytorchFile, ReadsTensorsOfClassesThatAreDicts) {
  for (const std::string maker :
       {"ccollections\ndefaultdict\ncbuiltins\nlist\n\x85R", "cmy_training\nStates\n)R"}) {
    write_beside(maker + text("t") + tensor(0, "K\x06\x85", "K\x01\x85") + "s");
    const auto tensors = read_pytorch(path_);
    ASSERT_EQ(tensors.size(), 2u);
    EXPECT_EQ(tensors[1].spec.name, "x.t");
  }
}

// Depth and cycles cost no more than their own size.
TEST_F(PytorchFile, HostilePicklesEndInAnError) {
  std::string deep(1'000'000, ']');
  deep += std::string(999'999, 'a') + ".";
  const auto bytes = std::as_bytes(std::span(deep));
  EXPECT_NE(read_pickle(bytes, "deep").root, nullptr);
  // A dict that contains itself.
  write(std::string("\x80\x02}q\0X\x01\0\0\0ah\0s.", 15));
  EXPECT_TRUE(fails_with(ErrorCode::corrupt, {"nested too deep"}, [&] { read_pytorch(path_); }));
}

}  // namespace
}  // namespace trireme::checkpoint::pytorch_file_test
