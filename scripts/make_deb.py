#!/usr/bin/env python3
"""Makes a Debian package of a build: dist/trireme_VERSION-1_ARCHITECTURE.deb (`make deb`). Nothing
is compiled. LibTorch is in no Debian package of the right version, so the programmes look for it
when they start (trireme/run/libtorch_place.h)."""

import gzip
import os
import pathlib
import re
import tempfile
import textwrap

from package_tree import (ROOT, arguments_of, arrow_libraries_of, programmes_of, run,
                          set_rpath)

# A project that is compiled against the package needs these. CMake names those that are missing.
TO_COMPILE = ("g++", "cmake", "libfmt-dev", "nlohmann-json3-dev", "libyaml-cpp-dev", "libssl-dev",
              "zlib1g-dev", "libxxhash-dev", "libzstd-dev", "libjpeg-dev", "libpng-dev",
              "libwebp-dev")


def arrange(prefix, version):
    """Lays the files out as Debian wants them."""
    modules = prefix / "lib/python3/dist-packages"
    modules.mkdir(parents=True)
    (modules / "trireme").symlink_to("../../../share/trireme/python/trireme")
    documents = prefix / "share/doc/trireme"
    # The licence is in /usr/share/common-licenses. Documents have links to both names.
    (documents / "LICENSE").unlink()
    (documents / "LICENSE").symlink_to("copyright")
    (documents / "copyright").write_text(
        (ROOT / "NOTICE").read_text() +
        "\nThe Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.\n")
    with gzip.GzipFile(documents / "changelog.gz", "wb", mtime=0) as file:
        file.write((ROOT / "CHANGELOG.md").read_bytes())
    for file in [*programmes_of(prefix), *arrow_libraries_of(prefix)]:
        set_rpath(file, "")
        run("strip", "--strip-unneeded", file)


def run_time_packages(stage, files, torch):
    """The Debian packages of the shared libraries, with their versions."""
    (stage / "debian").mkdir()
    (stage / "debian/control").write_text("Source: trireme\n\n"
                                          "Package: trireme\nArchitecture: any\n")
    said = run("dpkg-shlibdeps", "-O", "--ignore-missing-info", f"-l{torch / 'lib'}",
               *[f"-e{file}" for file in files], cwd=stage)
    return re.search(r"shlibs:Depends=(.*)", said)[1]


def write_control(package, build, architecture, depends):
    size = sum(file.stat().st_size for file in package.rglob("*")
               if file.is_file() and not file.is_symlink()) // 1024
    control = package / "DEBIAN"
    control.mkdir()
    (control / "control").write_text(textwrap.dedent(f"""\
        Package: trireme
        Version: {build.version}-1
        Architecture: {architecture}
        Maintainer: The Trireme Authors
        Installed-Size: {size}
        Depends: {depends}
        Recommends: {', '.join(TO_COMPILE)}, libcurl4
        Suggests: openmpi-bin, python3
        Section: science
        Priority: optional
        Description: distributed training with LibTorch
         Programmes, libraries, headers and a CMake package that train LibTorch models on
         threads, processes and hosts. LibTorch {build.torch_version} is needed too, and is
         not in Debian: install it with pip, or set TORCH_DIR to its folder.
        """))
    (control / "triggers").write_text("activate-noawait ldconfig\n")


def main():
    build, out = arguments_of(__doc__, "package")
    os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="trireme-deb-") as folder:
        stage = pathlib.Path(folder)
        package = stage / "package"
        package.mkdir()
        build.install(package / "usr")
        arrange(package / "usr", build.version)
        architecture = run("dpkg", "--print-architecture").strip()
        depends = run_time_packages(stage, programmes_of(package / "usr"), build.torch)
        write_control(package, build, architecture, depends)
        out.mkdir(parents=True, exist_ok=True)
        file = out / f"trireme_{build.version}-1_{architecture}.deb"
        run("dpkg-deb", "--root-owner-group", "-Zgzip", "--build", package, file)
        print(f"{file} ({file.stat().st_size / 1e6:.0f} MB), for LibTorch {build.torch_version}\n"
              f"depends on {depends}")


if __name__ == "__main__":
    main()
