"""`trireme bench requests`: it measures round trips on each path, leaves no process behind, and
refuses wrong input before it starts one."""

import json
import subprocess
import unittest

from support import TRIREME, SystemTest


class BenchRequests(SystemTest):
    def bench(self, *words, **options):
        return self.run_to_end(TRIREME, "bench", "requests", *words, **options)

    def test_figures_for_scripts_on_each_path(self):
        for path, taken in (("tcp", "tcp"), ("shm", "shm"), ("auto", "shm")):
            code, out, err = self.bench("--bytes", "4KB", "--path", path, "--threads", "2",
                                        "--steps", "100", "--json")
            self.assertEqual(code, 0, err)
            figures = json.loads(out)
            self.assertEqual(figures["path"], taken)
            self.assertEqual(figures["bytes"], 4000)
            self.assertEqual(figures["steps"], 200)
            for name in ("median_us", "cpu_us", "bare_tcp_median_us"):
                self.assertGreater(figures[name], 0, name)
            self.assertLessEqual(figures["min_us"], figures["median_us"])
            self.assertLessEqual(figures["median_us"], figures["p99_us"])

    def test_the_server_ends_with_a_killed_client(self):
        process = subprocess.Popen([TRIREME, "bench", "requests", "--steps", "100000000"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.kill()
        # The pipes close when the server, which inherited them, has ended too.
        process.communicate(timeout=10)

    def test_wrong_input_is_refused(self):
        for words, named in ((("--path", "udp"), "udp"), (("--bytes", "0"), "--bytes 0"),
                             (("--steps", "0"), "--steps 0"), (("--threads", "0"), "--threads 0"),
                             (("--server-threads", "-1"), "--server-threads -1")):
            code, out, err = self.bench(*words)
            self.assertEqual(code, 2, err)
            self.assertEqual(out, "")
            self.assertIn(named, err)


if __name__ == "__main__":
    unittest.main()
