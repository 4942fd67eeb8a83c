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
constexpr Callables kMakesData[] = {
    {"builtins",
     "bool bytearray bytes complex dict float frozenset int list object range set slice str "
     "tuple "},
    // Python 3 writes its builtins by the names of Python 2.
    {"__builtin__",
     "bool bytearray bytes complex dict float frozenset int list long object set slice str tuple "
     "unicode xrange "},
    {"_codecs", "encode "},
    {"collections", "Counter OrderedDict defaultdict deque "},
    {"functools", "partial "},
    {"datetime", "date datetime time timedelta timezone "},
    {"decimal", "Decimal "},
    {"fractions", "Fraction "},
    {"pathlib", "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath "},
    {"pathlib._local", "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath "},
    {"numpy", "dtype ndarray "},
    {"numpy.core.multiarray", "_reconstruct scalar "},
    {"numpy._core.multiarray", "_reconstruct scalar "},
    {"torch", "Size Tensor device "},
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
    {"torch.serialization", "_get_layout "},
    {"torch.torch_version", "TorchVersion "},
};

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
    "mpmath "
    "networkx jinja2 markupsafe fsspec filelock typing_extensions safetensors setuptools "
    "pkg_resources pip wheel six packaging requests urllib3 yaml tqdm PIL "
    "matplotlib sklearn joblib dill cloudpickle psutil IPython ipykernel fire click trireme ";

}  // namespace

bool makes_plain_data(std::string_view module, std::string_view name) {
  // Classes of TorchScript are not those of a module in Python.
  if (module == "__torch__" || module.starts_with("__torch__.")) return true;
  // The layers of a whole module, whose attributes are read. Other names there may be functions.
  if (module.starts_with("torch.nn.modules."))
    return !name.empty() && name.front() >= 'A' && name.front() <= 'Z' &&
           name.find('.') == std::string_view::npos;
  return std::ranges::any_of(kMakesData, [&](const Callables& each) {
    return each.module == module && is_listed(each.names, name);
  });
}

bool is_class_of_programme(std::string_view module, std::string_view name) {
  const std::string_view package = module.substr(0, module.find('.'));
  const bool is_of_others =
      (package.starts_with('_') && package != "__main__") || is_listed(kModulesOfOthers, package);
  // A dot leads to what the module has imported.
  return !package.empty() && !is_of_others && name.find('.') == std::string_view::npos;
}

}  // namespace trireme::checkpoint
