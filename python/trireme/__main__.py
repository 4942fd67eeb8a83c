"""`python -m trireme` is the programme `trireme`, and says where the files of this package are:

python -m trireme --cmake-prefix    the value of CMAKE_PREFIX_PATH for find_package(Trireme)
python -m trireme --share           the folder with examples and data
"""

import os
import sys

from . import _place, _programme


def main(words):
    if words == ["--cmake-prefix"]:
        print(_place.cmake_prefix_path())
    elif words == ["--share"]:
        print(_place.share_path())
    else:
        programme = _programme()
        os.execv(programme, [programme, *words])


main(sys.argv[1:])
