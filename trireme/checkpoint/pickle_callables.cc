#include <trireme/checkpoint/pickle_callables.h>

#include <algorithm>

namespace trireme::checkpoint {
namespace {

// Names with a space behind the last one too.
bool is_listed(std::string_view names, std::string_view name) {
  for (size_t at = names.find(name); at != std::string_view::npos; at = names.find(name, at + 1))
    if ((at == 0 || names[at - 1] == ' ') && names.substr(at + name.size()).starts_with(' '))
      return !name.empty();
  return false;
}

struct Callables {
  std::string_view module, names;
};
constexpr Callables kMakesValues[] = {
    {"builtins", "bool bytearray bytes complex float int range str "},
    // Python 3 writes its builtins by the names of Python 2.
    {"__builtin__", "bool bytearray bytes complex float int long str unicode xrange "},
    {"_codecs", "encode "},
    {"datetime", "date datetime time timedelta timezone "},
    {"decimal", "Decimal "},
    {"fractions", "Fraction "},
    {"pathlib", "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath "},
    {"pathlib._local", "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath "},
    {"torch", "device "},
    {"torch.serialization", "_get_layout "},
    {"torch.torch_version", "TorchVersion "},
};

// These make tensors, containers and other values that are not single ones.
constexpr Callables kMakesMore[] = {
    {"builtins", "dict frozenset list object set slice tuple "},
    {"__builtin__", "dict frozenset list object set slice tuple "},
    {"collections", "Counter OrderedDict defaultdict deque "},
    {"functools", "partial "},
    {"numpy", "dtype "},
    {"numpy.core.multiarray", "_reconstruct scalar "},
    {"numpy._core.multiarray", "_reconstruct scalar "},
    {"numpy.core.numeric", "_frombuffer "},
    {"numpy._core.numeric", "_frombuffer "},
    {"numpy.random._pickle", "__bit_generator_ctor __generator_ctor __randomstate_ctor "},
    {"numpy.random.bit_generator", "__pyx_unpickle_SeedSequence "},
    {"torch", "Size Tensor "},
    {"torch._tensor", "_rebuild_from_type_v2 "},
    {"torch._utils",
     "_rebuild_device_tensor_from_cpu_tensor _rebuild_device_tensor_from_numpy "
     "_rebuild_meta_tensor_no_storage _rebuild_nested_tensor _rebuild_parameter "
     "_rebuild_parameter_with_state _rebuild_qtensor _rebuild_sparse_csr_tensor "
     "_rebuild_sparse_tensor _rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3 "
     "_rebuild_wrapper_subclass _rebuild_xla_tensor "},
    {"torch.jit._pickle",
     "build_boollist build_doublelist build_intlist build_tensor_from_id build_tensorlist "
     "restore_type_tag "},
    {"torch.nn.parameter", "Buffer Parameter UninitializedBuffer UninitializedParameter "},
    {"torch.nn.utils.rnn", "PackedSequence "},
};

constexpr Callables kClassesOfState[] = {
    {"argparse", "Namespace "},
    {"random", "Random "},
    {"types", "SimpleNamespace "},
    {"uuid", "UUID "},
};
// All classes of these modules and of those in them.
constexpr std::string_view kModulesOfState[] = {
    "torch.nn.modules", "torch.nn.parallel", "torch.nn.utils",     "torch.optim",
    "torch.amp",        "torch.cuda.amp",    "torchvision.models", "torchvision.ops"};

// Constants, and the function by which a GradScaler begins an entry of its dict.
constexpr Callables kNames[] = {
    {"builtins", "Ellipsis NotImplemented "},
    {"__builtin__", "Ellipsis NotImplemented "},
    {"torch.amp.grad_scaler", "_refresh_per_optimizer_state "},
    {"torch._C", "_VariableFunctionsClass "},  // Its functions are those of `torch`.
};
// The types of tensors and arrays, the functions that layers have as attributes, and the modules
// whose classes tensors and generators of random numbers name.
constexpr std::string_view kTypesOfTorch[] = {"bfloat",
                                              "bits",
                                              "bool",
                                              "cdouble",
                                              "cfloat",
                                              "channels_last",
                                              "chalf",
                                              "complex",
                                              "contiguous_format",
                                              "double",
                                              "float",
                                              "half",
                                              "int",
                                              "jagged",
                                              "long",
                                              "per_",
                                              "preserve_format",
                                              "qint",
                                              "quint",
                                              "short",
                                              "sparse_",
                                              "strided",
                                              "uint"};
constexpr std::string_view kTypesOfNumpy =
    "bool bool_ bytes_ complex128 complex256 complex64 datetime64 float128 float16 float32 "
    "float64 int16 int32 int64 int8 longlong ndarray object_ str_ timedelta64 uint16 uint32 "
    "uint64 uint8 "
    "ulonglong void ";
constexpr std::string_view kModulesOfFunctions =
    "torch._C._linalg torch._C._nn torch._C._special torch.nn.functional torch.nn.init ";
// These modules have imported others, and have names of their own that begin with an underscore.
constexpr std::string_view kImportedByFunctions =
    "dataclasses grad importlib math np torch warnings ";
constexpr std::string_view kModulesOfTypes =
    "numpy.dtypes numpy.random numpy.random._mt19937 numpy.random._pcg64 numpy.random._philox "
    "numpy.random._sfc64 numpy.random.bit_generator torchvision.tv_tensors ";
// Modules with classes of tensors and storages, and with others that open files.
constexpr std::string_view kModulesOfTensors = "torch torch.cuda torch.storage ";

// The names by which Python and PyTorch call something of an object without knowing its class.
// Usual names of layers and options, such as `add` and `format`, are not among them.
constexpr std::string_view kMethods =
    "append buffers children endswith extend get items join keys load_state_dict modules "
    "named_buffers named_children named_modules named_parameters parameters pop popitem read "
    "readinto readline seek setdefault startswith state_dict tell values write ";

// The modules of Python 3, those of Python 2 by whose names pickles call them, and those of
// packages that often lie beside PyTorch. Other modules with such code begin with an underscore.
constexpr std::string_view kModulesOfOthers =
    "abc aifc antigravity argparse array ast asynchat asyncio asyncore atexit audioop base64 bdb "
    "binascii bisect builtins bz2 cProfile calendar cgi cgitb chunk cmath cmd code codecs codeop "
    "collections colorsys compileall concurrent configparser contextlib contextvars copy copyreg "
    "crypt csv ctypes curses dataclasses datetime dbm decimal difflib dis distutils doctest email "
    "encodings ensurepip enum errno faulthandler fcntl filecmp fileinput fnmatch fractions ftplib "
    "functools gc genericpath getopt getpass gettext glob graphlib grp gzip hashlib heapq hmac "
    "html http idlelib imaplib imghdr imp importlib inspect io ipaddress itertools json keyword "
    "lib2to3 linecache locale logging lzma mailbox mailcap marshal math mimetypes mmap "
    "modulefinder msilib msvcrt multiprocessing netrc nis nntplib nt ntpath nturl2path numbers "
    "opcode operator optparse os ossaudiodev pathlib pdb pickle pickletools pipes pkgutil "
    "platform plistlib poplib posix posixpath pprint profile pstats pty pwd py_compile pyclbr "
    "pydoc pydoc_data pyexpat queue quopri random re readline reprlib resource rlcompleter runpy "
    "sched secrets select selectors shelve shlex shutil signal site smtpd smtplib sndhdr socket "
    "socketserver spwd sqlite3 sre_compile sre_constants sre_parse ssl stat statistics string "
    "stringprep struct subprocess sunau symtable sys sysconfig syslog tabnanny tarfile telnetlib "
    "tempfile termios textwrap this threading time timeit tkinter token tokenize tomllib trace "
    "traceback tracemalloc tty turtle turtledemo types typing unicodedata unittest urllib uu uuid "
    "venv warnings wave weakref webbrowser winreg winsound wsgiref xdrlib xml xmlrpc zipapp "
    "zipfile zipimport zlib zoneinfo annotationlib compression "
    "BaseHTTPServer CGIHTTPServer ConfigParser Cookie Dialog DocXMLRPCServer FileDialog "
    "HTMLParser Queue ScrolledText SimpleDialog SimpleHTTPServer SimpleXMLRPCServer SocketServer "
    "StringIO Tix Tkconstants Tkdnd Tkinter UserDict UserList UserString anydbm cPickle cStringIO "
    "commands cookielib copy_reg dbhash dumbdbm dummy_thread exceptions gdbm htmlentitydefs "
    "httplib markupbase new repr robotparser sets test thread tkColorChooser tkCommonDialog "
    "tkFileDialog tkFont tkMessageBox tkSimpleDialog ttk urllib2 urlparse whichdb xmlrpclib "
    "torch torchvision torchaudio torchgen functorch caffe2 triton numpy scipy pandas sympy "
    "mpmath networkx jinja2 markupsafe fsspec filelock typing_extensions safetensors setuptools "
    "pkg_resources pip wheel six packaging requests urllib3 yaml tqdm PIL "
    "matplotlib sklearn joblib dill cloudpickle psutil IPython ipykernel fire click pexpect "
    "ptyprocess tornado zmq jupyter_client jupyter_core traitlets gevent werkzeug webdataset "
    "tensorboard isympy xxlimited xxlimited_35 pyarrow lmdb h5py grpc google absl docutils sphinx "
    "pygments bs4 babel markdown trireme ";

template <typename Table>
bool has(const Table& table, std::string_view module, std::string_view name) {
  return std::ranges::any_of(table, [&](const Callables& each) {
    return each.module == module && is_listed(each.names, name);
  });
}

bool is_in_dots(std::string_view name) { return name.find('.') != std::string_view::npos; }

// Each part begins with a capital, as "Outer._Inner" does.
bool is_name_of_class(std::string_view name) {
  for (;;) {
    const size_t dot = name.find('.');
    const std::string_view part = name.substr(0, dot);
    const size_t first = part.find_first_not_of('_');
    if (first == std::string_view::npos || part[first] < 'A' || part[first] > 'Z') return false;
    if (dot == std::string_view::npos) return true;
    name.remove_prefix(dot + 1);
  }
}

// Folders beside Python's modules, such as lib-dynload, can be imported by their names too.
bool is_of_letters(std::string_view module) {
  return std::ranges::all_of(module, [](char c) {
    return c == '_' || c == '.' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80;
  });
}

bool is_of_others(std::string_view package) {
  return (package.starts_with('_') && package != "__main__") ||
         is_listed(kModulesOfOthers, package);
}

std::string_view package_of(std::string_view module) { return module.substr(0, module.find('.')); }

}  // namespace

bool is_of_torchscript(std::string_view module, std::string_view) {
  return module == "__torch__" || module.starts_with("__torch__.");
}

bool makes_plain_data(std::string_view module, std::string_view name) {
  return is_of_torchscript(module, name) || makes_value(module, name) ||
         has(kMakesMore, module, name);
}

bool is_of_python(std::string_view module, std::string_view name) {
  const std::string_view package = package_of(module);
  return (makes_value(module, name) || has(kMakesMore, module, name)) && package != "torch" &&
         package != "numpy";
}

bool makes_value(std::string_view module, std::string_view name) {
  return has(kMakesValues, module, name);
}

bool is_class_of_state(std::string_view module, std::string_view name) {
  const bool is_in = std::ranges::any_of(kModulesOfState, [&](std::string_view each) {
    return module.starts_with(each) &&
           (module.size() == each.size() || module[each.size()] == '.');
  });
  // One letter, such as F, is the name by which a module has imported another one.
  return has(kClassesOfState, module, name) ||
         (is_in && is_name_of_class(name) && !is_in_dots(name) && name.size() > 1);
}

bool is_class_of_programme(std::string_view module, std::string_view name, bool is_called) {
  // A dot leads to what the module has imported, unless the names are those of classes.
  const bool is_own = !package_of(module).empty() && is_of_letters(module) &&
                      !is_of_others(package_of(module)) && !module.starts_with("__main__.");
  return is_own && !name.starts_with("__") &&
         (is_name_of_class(name) || (!is_called && !is_in_dots(name)));
}

bool is_function_of_torch(std::string_view name) {
  return is_listed(
      "abs celu clamp cos erf exp hardshrink log log_softmax prelu relu rrelu selu sigmoid sin "
      "softmax sqrt square tanh threshold ",
      name);
}

bool is_name_of_method(std::string_view name) {
  return name.starts_with("__") || is_listed(kMethods, name);
}

bool may_be_named(std::string_view module, std::string_view name) {
  if (makes_plain_data(module, name) || is_class_of_state(module, name) ||
      is_class_of_programme(module, name, false) || has(kNames, module, name))
    return true;
  if (is_in_dots(name)) return false;
  const bool is_type_of_torch =
      module == "torch" && std::ranges::any_of(kTypesOfTorch, [&](std::string_view each) {
        return name.starts_with(each);
      });
  return is_type_of_torch || (module == "numpy" && is_listed(kTypesOfNumpy, name)) ||
         (is_listed(kModulesOfFunctions, module) && !name.starts_with('_') &&
          !is_listed(kImportedByFunctions, name)) ||
         (is_listed(kModulesOfTypes, module) && is_name_of_class(name)) ||
         (is_listed(kModulesOfTensors, module) && is_name_of_class(name) &&
          (name.ends_with("Tensor") || name.ends_with("Storage") || name == "Generator"));
}

}  // namespace trireme::checkpoint
