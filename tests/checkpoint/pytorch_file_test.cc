#include <trireme/checkpoint/pytorch_file.h>

#include <gmock/gmock.h>
#include <trireme/checkpoint/pickle.h>
#include <trireme/checkpoint/safetensors_dtype.h>
#include <trireme/checkpoint/zip_archive.h>

#include "checkpoint_testing.h"

namespace trireme::checkpoint::pytorch_file_test {
namespace {

using plan::DType;
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
    return std::string("\x80\x02}X", 4) + static_cast<char>(name.size()) + std::string(3, '\0') +
           name + value + "s.";
  }
  static std::string text(const std::string& value) {
    return "X" + std::string(1, static_cast<char>(value.size())) + std::string(3, '\0') + value;
  }
  // Writes a dict with a tensor "w", and what `value` makes as "x".
  void write_beside(const std::string& value) {
    write("\x80\x02}" + text("w") + tensor(0, "K\x06\x85", "K\x01\x85") + "s" + text("x") + value +
          "s.");
  }
  // The message of the error for a file with that value, empty if it is read.
  std::string refusal(const std::string& value) {
    write_beside(value);
    try {
      read_pytorch(path_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
      return error.what();
    }
    return {};
  }
  std::vector<float> floats_of(const std::string& pickle) {
    write(pickle);
    const auto tensors = read_pytorch(path_);
    std::vector<float> values(tensors.at(0).bytes.size() / 4);
    std::memcpy(values.data(), tensors[0].bytes.data(), tensors[0].bytes.size());
    return values;
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
  const auto code = ZipReader(path_).read("archive/code/__torch__.py");
  const std::string classes(reinterpret_cast<const char*>(code.data()), code.size());
  EXPECT_THAT(classes, testing::HasSubstr("__annotations__[\"1\"]"));
  EXPECT_THAT(classes, testing::HasSubstr("__annotations__[\"drop\"]"));
}

TEST_F(PytorchFile, AnArchiveKeepsATensorWhoseNameIsANumberBesideModules) {
  const OwnedTensor one("a.0", {1}), two("a.2.weight", {2});
  write_module_archive(path_, {one.spec, two.spec},
                       [&](size_t i) { return (i == 0 ? one : two).view().bytes; });
  const auto code = ZipReader(path_).read("archive/code/__torch__.py");
  const std::string classes(reinterpret_cast<const char*>(code.data()), code.size());
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
  const std::string w = tensor(0, "K\x06\x85", "K\x01\x85");
  for (const std::string module_and_name :
       {"builtins\nmap", "itertools\nimap", "site\naddsitedir", "argparse\nFileType",
        "_thread\nstart_new_thread", "torch._utils\nos.system",
        "torch.nn.modules.module\ntorch.load", "__main__\nos.system", "joblib\nload"})
    for (const char* const how : {")R", ")\x81"}) {
      write(std::string("\x80\x02}", 3) + std::string("X\x01\0\0\0w", 6) + w + "s" +
            std::string("X\x01\0\0\0x", 6) + "c" + module_and_name + "\n" + how + "s.");
      std::string name = module_and_name;
      name[name.find('\n')] = '.';
      EXPECT_TRUE(fails_with(ErrorCode::unsupported, {path_, "its pickle calls " + name + ","},
                             [&] { read_pytorch(path_); }));
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
  for (const std::string each : {"torch.hub\nload", "torch\nload", "numpy\nsave",
                                 "torch.utils.collect_env\nrun", "torch.nn.functional\nos.system"})
    EXPECT_THAT(refusal("c" + each + "\n"), HasSubstr("its pickle names "));
  // Python stores at the number of entries, whatever lies there.
  EXPECT_THAT(refusal(text("my") + "q\x01" + "0" + text("os") + "\x94" + "0h\x01" +
                      text("system") + "\x93"),
              HasSubstr("names os.system,"));
}

TEST_F(PytorchFile, PassesOverTheObjectsOfTrainingStates) {
  for (const std::string each :
       {"cmy_training\nKind\n)\x81", "cmy_training\nKind\nK\x01\x85R",
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
