"""Data-parallel training of Python models through Trireme's exchange, and its programmes from
Python.

    import torch, trireme

    world = trireme.join()                      # finds this process's place in its job
    model = Net()
    trireme.distribute(world, model)            # after backward() every .grad is the global mean
    ...
    world.leave()

`trireme.launch(["python", "train.py"], workers=2)` starts a job; `plan()`, `read_report()` and
`read_checkpoint()` read what `trireme` writes. The library is the one beside this package or in
TRIREME_LIB, and the programme `trireme` the one in TRIREME_BIN or on the PATH.
"""

import ctypes
import json
import os
import pathlib
import shutil
import subprocess

from . import _place
from ._place import cmake_prefix_path

__all__ = ["Error", "World", "join", "distribute", "launch", "plan", "read_report",
           "read_checkpoint", "cmake_prefix_path"]

_place.refuse_another_torch()


class Error(RuntimeError):
    """An error of Trireme: what happened, the value, and what to do. `exit_code` is the one with
    which a process that gives up should end."""

    def __init__(self, message, status):
        super().__init__(message)
        self.status = status
        self.exit_code = _library().trireme_exit_code(status)


class _Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    """The layout of DLPack's DLTensor."""
    _fields_ = [("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32),
                ("dtype", _Type), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_TYPES = {"float16": (2, 16), "float32": (2, 32), "float64": (2, 64), "bfloat16": (4, 16),
          "int32": (0, 32), "int64": (0, 64), "uint8": (1, 8)}
_OPS = {"sum": 0, "mean": 1, "max": 2, "min": 3}
_loaded = None


def _library():
    global _loaded
    if _loaded is None:
        _loaded = _load()
    return _loaded


def _load():
    import torch  # Its LibTorch must be in the process before ours asks for it.
    folder = os.environ.get("TRIREME_LIB")
    places = [pathlib.Path(folder)] if folder else _place.places_of("lib")
    for place in places:
        if (place / "libtrireme_c.so").exists():
            library = ctypes.CDLL(str(place / "libtrireme_c.so"))
            break
    else:
        raise ImportError("libtrireme_c.so is in none of "
                          f"{', '.join(map(str, places))}; try: TRIREME_LIB=FOLDER")
    for name in ("trireme_last_error", "trireme_version", "trireme_torch_version"):
        getattr(library, name).restype = ctypes.c_char_p
    library.trireme_world_share.argtypes = [ctypes.c_void_p, ctypes.c_int64,
                                            ctypes.POINTER(ctypes.c_int64),
                                            ctypes.POINTER(ctypes.c_int64)]
    library.trireme_gradients_reduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p,
                                                 ctypes.c_int64]
    for name in ("trireme_world_rank", "trireme_world_size", "trireme_world_leave",
                 "trireme_barrier", "trireme_world_free", "trireme_gradients_free"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    built_with = library.trireme_torch_version().decode()
    here = torch.__version__.split("+")[0]
    if here != built_with:
        raise ImportError(f"{library._name} was built with LibTorch {built_with}, and this "
                          f"environment has torch {here}; try: torch=={built_with}, or a build of "
                          "Trireme with this environment's LibTorch")
    return library


def _check(status):
    if status != 0:
        raise Error(_library().trireme_last_error().decode(), status)


def _view(tensor):
    """A _Tensor of a torch tensor or a NumPy array, which must live as long as the view."""
    name = str(tensor.dtype).replace("torch.", "")
    if name not in _TYPES:
        raise TypeError(f"a tensor of {name}; try one of {', '.join(_TYPES)}")
    is_torch = hasattr(tensor, "data_ptr")
    if not (tensor.is_contiguous() if is_torch else tensor.flags.c_contiguous):
        raise ValueError("a tensor that is not contiguous; try: tensor.contiguous()")
    if is_torch and tensor.device.type != "cpu":
        raise ValueError(f"a tensor on {tensor.device}; try: tensor.cpu()")
    shape = (ctypes.c_int64 * max(1, len(tensor.shape)))(*tensor.shape)
    code, bits = _TYPES[name]
    return _Tensor(tensor.data_ptr() if is_torch else tensor.ctypes.data, _Device(1, 0),
                   len(tensor.shape), _Type(code, bits, 1), shape, None, 0)


def _pointers(views):
    return (ctypes.POINTER(_Tensor) * len(views))(
        *[ctypes.pointer(view) if view is not None else None for view in views])


class World:
    """All ranks of the job, as one of them sees them. One thread at a time uses it."""

    def __init__(self):
        self._handle = ctypes.c_void_p()
        _check(_library().trireme_world_join(ctypes.byref(self._handle)))

    @property
    def rank(self):
        return _library().trireme_world_rank(self._handle)

    @property
    def size(self):
        return _library().trireme_world_size(self._handle)

    def share(self, batch):
        """This rank's part of a global batch, as a range of samples."""
        first, count = ctypes.c_int64(), ctypes.c_int64()
        _check(_library().trireme_world_share(self._handle, batch, ctypes.byref(first),
                                              ctypes.byref(count)))
        return range(first.value, first.value + count.value)

    def all_reduce(self, tensor, op="sum"):
        """COLLECTIVE. In place: `sum`, `mean`, `max` or `min` over the ranks."""
        view = _view(tensor)
        _check(_library().trireme_all_reduce(self._handle, ctypes.byref(view), _OPS[op]))
        return tensor

    def broadcast(self, tensor, root=0):
        """COLLECTIVE. In place."""
        view = _view(tensor)
        _check(_library().trireme_broadcast(self._handle, ctypes.byref(view), root))
        return tensor

    def barrier(self):
        _check(_library().trireme_barrier(self._handle))

    def leave(self):
        """Says goodbye. Without it the others take this process for lost."""
        _check(_library().trireme_world_leave(self._handle))

    def __del__(self):
        if self._handle and _loaded is not None:
            _loaded.trireme_world_free(self._handle)


def join():
    """Finds this process's place in its job, and meets the others."""
    return World()


class _Replica:
    """Makes the gradients of a model those of the mean over all ranks, at the end of backward."""

    def __init__(self, world, model):
        import torch
        self.world, self.samples, self.quiet = world, 1, False
        named = [(name, parameter) for name, parameter in model.named_parameters()
                 if parameter.requires_grad]
        self.parameters = [parameter for _, parameter in named]
        views = [_view(parameter.detach()) for parameter in self.parameters]
        names = (ctypes.c_char_p * len(named))(*[name.encode() for name, _ in named])
        self._handle = ctypes.c_void_p()
        _check(_library().trireme_gradients_new(world._handle, _pointers(views), names, len(named),
                                                ctypes.byref(self._handle)))
        for buffer in model.buffers():
            world.broadcast(buffer)
        self._queued = False
        self._engine = torch.autograd.Variable._execution_engine
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(self._reached)

    def _reached(self, _):
        if not self._queued:
            self._queued = True
            self._engine.queue_callback(self._finish)

    def _finish(self):
        self._queued = False
        if self.quiet or self.world.size == 1:
            return
        views = [None if parameter.grad is None else _view(parameter.grad)
                 for parameter in self.parameters]
        _check(_library().trireme_gradients_reduce(self._handle, _pointers(views), self.samples))

    def no_sync(self):
        """`with replica.no_sync():` backward() adds to this rank's gradients alone."""
        replica = self

        class Quiet:
            def __enter__(self):
                replica.quiet = True

            def __exit__(self, *_):
                replica.quiet = False

        return Quiet()

    def __del__(self):
        if getattr(self, "_handle", None) and _loaded is not None:
            _loaded.trireme_gradients_free(self._handle)


def distribute(world, model):
    """COLLECTIVE. Gives all ranks rank 0's parameters and buffers. From now on every .grad is the
    mean over all ranks at the end of backward(). Set `samples` of the result if the ranks'
    shares of a batch differ: gradients then count by them."""
    return _Replica(world, model)


def _programme():
    folder = os.environ.get("TRIREME_BIN")
    places = [pathlib.Path(folder)] if folder else _place.places_of("bin")
    for place in places:
        if (place / "trireme").exists():
            return str(place / "trireme")
    found = shutil.which("trireme")
    if found is None:
        raise FileNotFoundError("the programme trireme was not found; try: TRIREME_BIN=FOLDER")
    return found


def launch(command, workers=2, elastic=None, **options):
    """Runs a command in each worker of a job, as `trireme launch` does, and returns its exit code.
    `elastic` is "MIN:MAX"; other options are those of subprocess.run."""
    words = [_programme(), "launch", "--workers", str(workers)]
    if elastic:
        words += ["--elastic", elastic]
    return subprocess.run([*words, "--", *map(str, command)], check=False, **options).returncode


def plan(config, *words):
    """What `trireme plan CONFIG WORDS... --json` prints."""
    done = subprocess.run([_programme(), "plan", str(config), *map(str, words), "--json"],
                          check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


def read_report(path):
    """The report of a run (docs/report.md)."""
    return json.loads(pathlib.Path(path).read_text())


def read_checkpoint(folder):
    """The manifest and the model's tensors of the newest checkpoint in a folder, or of the
    checkpoint itself. Needs the package safetensors."""
    from safetensors.torch import load_file
    folder = pathlib.Path(folder)
    steps = sorted(folder.glob("step-*"))
    if not (folder / "manifest.json").exists():
        if not steps:
            raise FileNotFoundError(f"there is no checkpoint in {folder}")
        folder = steps[-1]
    manifest = json.loads((folder / "manifest.json").read_text())
    return manifest, load_file(str(folder / "model.safetensors"))
