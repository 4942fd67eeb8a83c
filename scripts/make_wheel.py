#!/usr/bin/env python3
"""Makes a wheel of a build: dist/trireme-VERSION-py3-none-PLATFORM.whl (`make wheel`). Nothing is
compiled. The wheel has programmes, libraries, headers, CMake package, examples and documents, and
the shared libraries below them that a machine may lack. It works with the LibTorch of the build
alone, in the Python environment into which it is installed."""

import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import textwrap

from package_tree import (ROOT, SYSTEM, arguments_of, arrow_libraries_of, needed_by, programmes_of,
                          run, set_rpath, stop, tool)

# The headers of these are in Trireme's own headers.
HEADERS = {"fmt": "/usr/include/fmt", "nlohmann": "/usr/include/nlohmann"}
COMMAND = '''\
#!python
"""Starts the programme of the package trireme. It does not import the package."""
import importlib.util
import os
import pathlib
import sys

package = pathlib.Path(importlib.util.find_spec("trireme").origin).parent
if not (package.parent / "torch").exists() and "TORCH_DIR" not in os.environ:
    torch = importlib.util.find_spec("torch")
    if torch is not None and torch.origin:
        os.environ["TORCH_DIR"] = str(pathlib.Path(torch.origin).parent)
programme = str(package / "bin" / "trireme")
os.execv(programme, [programme, *sys.argv[1:]])
'''


def arrange(package, build):
    """Moves what `cmake --install` has copied to its place in the package."""
    modules = package / "share/trireme/python"
    for module in (modules / "trireme").iterdir():
        shutil.move(module, package / module.name)
    shutil.rmtree(modules)
    (package / "_built_with.py").write_text(
        f'TRIREME_VERSION = "{build.version}"\nTORCH_VERSION = "{build.torch_version}"\n')
    configs = list(package.glob("lib*/cmake/Trireme"))
    if configs != [package / "lib/cmake/Trireme"]:
        stop(f"the CMake package is in {configs}; try: cmake -DCMAKE_INSTALL_LIBDIR=lib")
    config = configs[0] / "TriremeConfig.cmake"
    # The place of LibTorch on this machine means nothing elsewhere.
    config.write_text(config.read_text().replace(str(build.torch), ""))
    (configs[0] / "TriremeWheel.cmake").write_text(
        "cmake_path(SET TRIREME_BUNDLED NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../../..)\n"
        'string(REGEX REPLACE "/$" "" TRIREME_BUNDLED ${TRIREME_BUNDLED})\n'
        "cmake_path(GET TRIREME_BUNDLED PARENT_PATH TRIREME_BUILT_WITH_TORCH)\n"
        "string(APPEND TRIREME_BUILT_WITH_TORCH /torch)\n")


def places_of_libraries(files):
    """The path of each shared library that the loader finds for these files, by name."""
    places = {}
    for file in files:
        for line in run("ldd", file).splitlines():
            name, arrow, path = line.strip().partition(" => ")
            if arrow and path.startswith("/"):
                places[name] = pathlib.Path(path.split(" ")[0])
    return places


def bundle(package, build):
    """Copies the libraries that a machine may lack; returns the files that were copied from. A copy
    has a name of its own, so that a process may have the machine's library too."""
    files = programmes_of(package)
    places, origins, waiting = places_of_libraries(files), {}, list(files)
    while waiting:
        user = waiting.pop()
        for name in needed_by(user):
            if SYSTEM.match(name) or (build.torch / "lib" / name).exists():
                continue
            if name not in places:
                stop(f"the shared library {name} was not found")
            own_name = name.replace(".so", "-trireme.so", 1)
            copy = package / "lib" / own_name
            if name not in origins:
                origins[name] = places[name].resolve()
                shutil.copy(origins[name], copy)
                waiting.append(copy)
                run(tool("patchelf"), "--set-soname", own_name, copy)
                set_rpath(copy, "$ORIGIN")
            run(tool("patchelf"), "--replace-needed", name, own_name, user)
    for file in files:
        set_rpath(file, "$ORIGIN/../lib:$ORIGIN/../../torch/lib")
    for file in arrow_libraries_of(package):
        set_rpath(file, "$ORIGIN/../../pyarrow")
    for name, folder in HEADERS.items():
        if not pathlib.Path(folder).exists():
            stop(f"there is no {folder}")
        shutil.copytree(folder, package / "share/trireme/include" / name)
    return [*origins.values(), *(next(pathlib.Path(folder).glob("*.h*"))
                                for folder in HEADERS.values())]


def copy_licences(files, folder):
    """The licence texts of the bundled files are those of their Debian packages."""
    for file in files:
        for path in (file, pathlib.Path("/usr") / file.relative_to("/"),
                     pathlib.Path("/") / file.relative_to("/usr") if file.is_relative_to("/usr")
                     else file):
            found = subprocess.run(["dpkg-query", "-S", str(path)], check=False,
                                   capture_output=True, text=True)
            if found.returncode == 0:
                break
        else:
            stop(f"the licence of {file} was not found, because it is in no Debian package")
        name = found.stdout.split(":")[0]
        shutil.copy(f"/usr/share/doc/{name}/copyright", folder / f"{name}.txt")


def write_metadata(stage, build, tag, bundled):
    info = stage / f"trireme-{build.version}.dist-info"
    licences = info / "licenses"
    licences.mkdir(parents=True)
    for name in ("LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, licences)
    copy_licences(bundled, licences)
    listed = "".join(f"License-File: {file.name}\n" for file in sorted(licences.iterdir()))
    arrow = ""
    if build.arrow_version:
        # The name of its libraries has the first two numbers of the version.
        minor = ".".join(build.arrow_version.split(".")[:2])
        arrow = f'Provides-Extra: arrow\nRequires-Dist: pyarrow=={minor}.*; extra == "arrow"\n'
    (info / "METADATA").write_text(textwrap.dedent(f"""\
        Metadata-Version: 2.4
        Name: trireme
        Version: {build.version}
        Summary: Distributed training with LibTorch, on threads, processes and hosts
        License-Expression: Apache-2.0
        Requires-Python: >=3.10
        Requires-Dist: torch=={build.torch_version}
        Description-Content-Type: text/markdown
        """) + arrow + listed + "\n" + (ROOT / "README.md").read_text())
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: trireme make_wheel\n"
                                f"Root-Is-Purelib: false\nTag: {tag}\n")
    scripts = stage / f"trireme-{build.version}.data/scripts"
    scripts.mkdir(parents=True)
    (scripts / "trireme").write_text(COMMAND)
    (scripts / "trireme").chmod(0o755)


def platform_tag():
    """Machines with an older C library cannot run the programmes."""
    library, version = os.confstr("CS_GNU_LIBC_VERSION").split()
    if library != "glibc":
        stop(f"the C library is {library}; wheels are made for glibc")
    major, minor = version.split(".")[:2]
    return f"manylinux_{major}_{minor}_{platform.machine()}"


def main():
    build, out = arguments_of(__doc__, "wheel")
    with tempfile.TemporaryDirectory(prefix="trireme-wheel-") as folder:
        stage = pathlib.Path(folder) / "stage"
        package = stage / "trireme"
        build.install(package)
        arrange(package, build)
        bundled = bundle(package, build)
        write_metadata(stage, build, f"py3-none-{platform_tag()}", bundled)
        out.mkdir(parents=True, exist_ok=True)
        run(sys.executable, "-m", "wheel", "pack", "--dest-dir", out, stage,
            env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
        name = f"trireme-{build.version}-py3-none-{platform_tag()}.whl"
        size = (out / name).stat().st_size / 1e6
        print(f"{out / name} ({size:.0f} MB), for torch {build.torch_version}")


if __name__ == "__main__":
    main()
