"""Runs each block of Python in the documents, in two processes if it joins a job."""

import sys
import unittest

from support import BIN, ROOT, TRIREME, SystemTest, blocks_of, environment

PACKAGE = {"PYTHONPATH": str(ROOT / "python"), "TRIREME_LIB": str(BIN.parent / "lib"),
           "TRIREME_BIN": str(BIN), "OMP_NUM_THREADS": "1"}


class PythonDocuments(SystemTest):
    def test_every_block_runs(self):
        count = 0
        for document in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
            for _, language, block in blocks_of(document.read_text()):
                if language != "python":
                    continue
                program = self.folder / "block.py"
                program.write_text(block)
                words = [sys.executable, program]
                if "trireme.join()" in block:
                    words = [TRIREME, "launch", "--workers", "2", "--", *words]
                code, out, err = self.run_to_end(*words, timeout=150,
                                                 env=environment(**PACKAGE))
                self.assertEqual(code, 0, f"{document.name}: {out}{err}")
                count += 1
        self.assertGreaterEqual(count, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
