"""Where the parts of this package are, and which torch they need. It imports no torch, which would
take a second."""

import importlib.util
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent

try:
    from ._built_with import TORCH_VERSION, TRIREME_VERSION  # Only a wheel has this file.
except ImportError:
    TORCH_VERSION = TRIREME_VERSION = None


def places_of(kind):
    """The folders that may have the libraries ("lib") or the programmes ("bin")."""
    places = [HERE / kind, HERE.parents[1] / "build" / kind]  # A wheel, the source tree.
    if HERE.parts[-4:-1] == ("share", "trireme", "python"):
        places.append(HERE.parents[3] / kind)  # `make install`, or the Debian package.
    return places


def torch_here():
    """The folder and the version of the torch that `import torch` would find; None if there is
    none."""
    try:
        found = importlib.util.find_spec("torch")
    except ValueError:
        return None
    if found is None or found.origin is None:
        return None
    folder = pathlib.Path(found.origin).parent
    try:
        said = re.search(r"^__version__\b[^'\"]*['\"]([^'\"+]+)",
                         (folder / "version.py").read_text(), re.MULTILINE)
    except OSError:
        return None
    return (folder, said[1]) if said else None


def refuse_another_torch():
    """Raises ImportError if the torch of this environment is not the one of this wheel."""
    here = torch_here()
    if TORCH_VERSION is None or here is None or here[1] == TORCH_VERSION:
        return
    raise ImportError(f"this trireme {TRIREME_VERSION} was built with LibTorch {TORCH_VERSION}, "
                      f"and {here[0]} is torch {here[1]}; try: pip install torch=={TORCH_VERSION}, "
                      f"or a wheel of Trireme that was made with torch {here[1]} (make wheel)")


def share_path():
    """The folder with the examples and the data that ship."""
    if TORCH_VERSION:
        return str(HERE / "share/trireme")
    return str(HERE.parents[1])  # The source tree, or share/trireme of an installed tree.


def cmake_prefix_path():
    """The value of CMAKE_PREFIX_PATH with which find_package(Trireme) finds this package."""
    prefix = HERE if TORCH_VERSION else HERE.parents[3]
    torch = torch_here()
    if torch is None or torch[0] == prefix.parent / "torch":
        return str(prefix)
    return f"{prefix};{torch[0]}"
