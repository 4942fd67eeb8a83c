"""The library trireme_c: its functions, errors and tensors."""

import ctypes
import os
import pathlib

from . import _place


class Error(RuntimeError):
    """An error of Trireme: what happened, the value, and what to do. `exit_code` is the one with
    which a process that gives up should end."""

    def __init__(self, message, status):
        super().__init__(message)
        self.status = status
        self.exit_code = library().trireme_exit_code(status)


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
# Statuses that are no errors, as in trireme_c.h.
OK, MEET_AGAIN, STOPPED, DISMISSED = 0, 10, 11, 12
_HANDLE, _TEXT, _NUMBER, _PLACE = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64,
                                   ctypes.POINTER(ctypes.c_int64))
_ARGUMENTS = {
    "trireme_world_rank": [_HANDLE],
    "trireme_world_size": [_HANDLE],
    "trireme_world_is_elastic": [_HANDLE],
    "trireme_world_share": [_HANDLE, _NUMBER, _PLACE, _PLACE],
    "trireme_world_leave": [_HANDLE],
    "trireme_world_free": [_HANDLE],
    "trireme_barrier": [_HANDLE],
    "trireme_gradients_reduce": [_HANDLE, ctypes.c_void_p, _NUMBER],
    "trireme_gradients_begin": [_HANDLE, _NUMBER],
    "trireme_gradients_ready": [_HANDLE, ctypes.c_int32, ctypes.c_void_p],
    "trireme_gradients_finish": [_HANDLE],
    "trireme_gradients_fact": [_HANDLE, _TEXT, _TEXT],
    "trireme_gradients_check_every": [_HANDLE, _NUMBER],
    "trireme_gradients_hold": [_HANDLE, ctypes.c_int32, ctypes.c_void_p],
    "trireme_gradients_skip_nonfinite": [_HANDLE, ctypes.c_int],
    "trireme_gradients_nonfinite_rank": [_HANDLE],
    "trireme_gradients_refuse": [_HANDLE, _TEXT, _TEXT],
    "trireme_gradients_buckets": [_HANDLE],
    "trireme_gradients_sent_early": [_HANDLE],
    "trireme_gradients_free": [_HANDLE],
    "trireme_state_new": [_HANDLE, _TEXT, _NUMBER, ctypes.c_void_p],
    "trireme_state_hold": [_HANDLE, _TEXT, ctypes.c_int, ctypes.c_void_p],
    "trireme_state_note": [_HANDLE, _TEXT],
    "trireme_state_begin": [_HANDLE, ctypes.c_int, _PLACE],
    "trireme_state_commit": [_HANDLE, ctypes.c_int],
    "trireme_state_end": [_HANDLE],
    "trireme_state_read_note": [_HANDLE],
    "trireme_state_read": [_HANDLE, _TEXT, ctypes.c_void_p],
    "trireme_state_free": [_HANDLE],
}
_loaded = None


def library():
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
    for name, words in _ARGUMENTS.items():
        getattr(library, name).argtypes = words
    for name in ("trireme_last_error", "trireme_version", "trireme_torch_version",
                 "trireme_state_read_note"):
        getattr(library, name).restype = ctypes.c_char_p
    built_with = library.trireme_torch_version().decode()
    here = torch.__version__.split("+")[0]
    if here != built_with:
        raise ImportError(f"{library._name} was built with LibTorch {built_with}, and this "
                          f"environment has torch {here}; try: torch=={built_with}, or a build of "
                          "Trireme with this environment's LibTorch")
    return library


def free(name, handle):
    """Gives back what the library has made, unless the interpreter is gone before it."""
    if handle and _loaded is not None:
        getattr(_loaded, name)(handle)


def check(status):
    if status != 0:
        raise Error(library().trireme_last_error().decode(), status)


def view_of(tensor):
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


def pointers_to(views):
    return (ctypes.POINTER(_Tensor) * len(views))(
        *[ctypes.pointer(view) if view is not None else None for view in views])
