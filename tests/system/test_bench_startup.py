"""`trireme bench startup`: it measures launches until their first step, and refuses wrong input
before anything starts."""

import json
import unittest

from support import TRIREME, SystemTest


class BenchStartup(SystemTest):
    def bench(self, *words, **options):
        return self.run_to_end(TRIREME, "bench", "startup", *words, **options)

    def test_processes_and_threads_print_one_json_object(self):
        for path, workers in (("shm", 2), ("tcp", 2), ("threads", 3), ("shm", 1)):
            code, out, err = self.bench("--model", "tiny", "--workers", workers, "--path", path,
                                        "--repeats", "2", "--json")
            self.assertEqual(code, 0, err)
            figures = json.loads(out)
            self.assertEqual((figures["model"], figures["path"], figures["workers"],
                              figures["repeats"]), ("tiny", path, workers, 2))
            self.assertGreaterEqual(figures["median_ms"], figures["min_ms"])
            self.assertGreater(figures["min_ms"], 0)

    def test_without_json_it_says_what_was_measured(self):
        code, out, err = self.bench("--model", "tiny", "--repeats", "1")
        self.assertEqual(code, 0, err)
        self.assertIn("from the launch to the end of the first step", out)

    def test_wrong_input_is_refused_with_the_right_choices(self):
        for words, part in (
            (("--repeats", "0"), "--repeats 1 or more"),
            (("--workers", "0"), "--workers 1 or more"),
            (("--model", "nlp"), "there is no such model"),
            (("--path", "pigeon"), "threads, shm, tcp, gloo"),
            (("--path", "mpi"), "--path threads, shm, tcp or gloo"),
        ):
            code, out, err = self.bench(*words)
            self.assertEqual((code, out), (2, ""), words)
            self.assertIn(part, err)


if __name__ == "__main__":
    unittest.main()
