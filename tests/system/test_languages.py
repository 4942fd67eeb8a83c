"""The examples in Java, C# and Rust: one process and two compute the same. A language whose tools
this machine lacks is skipped: the programme then ends with 77.

test_languages.py Java|CSharp|Rust"""

import pathlib
import re
import shutil
import sys
import unittest

from support import BIN, ROOT, TRIREME, SystemTest, environment

EXAMPLES = ROOT / "examples" / "languages"
LIB = BIN.parent / "lib"
JNA = pathlib.Path("/usr/share/java/jna.jar")
SKIPPED = 77


class Language(SystemTest):
    needs = ()

    def setUp(self):
        missing = [need for need in self.needs
                   if not (need.exists() if isinstance(need, pathlib.Path) else shutil.which(need))]
        if missing:
            self.skipTest(f"this machine lacks {', '.join(map(str, missing))}")
        super().setUp()

    def assert_trains(self, compiler, programme, **variables):
        code, out, err = self.run_to_end(*compiler, timeout=120)
        self.assertEqual(code, 0, out + err)
        ends = []
        for launch in ((), (TRIREME, "launch", "--workers", 2, "--no-prefix", "--")):
            code, out, err = self.run_to_end(*launch, *programme, env=environment(**variables))
            self.assertEqual(code, 0, out + err)
            found = re.fullmatch(r"slope (\S+) offset (\S+)\s*", out)
            self.assertIsNotNone(found, out)
            ends.append([float(number) for number in found.groups()])
        for alone, together, wanted in zip(*ends, (2, 1)):
            self.assertAlmostEqual(alone, together, delta=1e-11)
            self.assertAlmostEqual(alone, wanted, delta=0.01)


class Java(Language):
    needs = ("javac", "java", JNA)

    def test_the_example_trains_the_same_with_two_processes(self):
        self.assert_trains(("javac", "-cp", JNA, "-d", ".", EXAMPLES / "java/Linear.java"),
                           ("java", "-cp", f"{JNA}:.", f"-Djna.library.path={LIB}", "Linear"))


class CSharp(Language):
    needs = ("mcs", "mono")

    def test_the_example_trains_the_same_with_two_processes(self):
        self.assert_trains(("mcs", "-out:Linear.exe", EXAMPLES / "csharp/Linear.cs"),
                           ("mono", "Linear.exe"), LD_LIBRARY_PATH=str(LIB))


class Rust(Language):
    needs = ("rustc",)

    def test_the_example_trains_the_same_with_two_processes(self):
        self.assert_trains(("rustc", "-O", EXAMPLES / "rust/linear.rs", "-L", LIB, "-C",
                            f"link-arg=-Wl,-rpath,{LIB}", "-o", "linear"), ("./linear",))


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if len(result.skipped) == result.testsRun else 0)
