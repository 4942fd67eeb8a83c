"""A stage that throws ends the job at once, on all its workers, with that error."""

import time
import unittest

from support import BIN, TRIREME, SystemTest, environment, processes_that_mention

STAGE_JOB = BIN / "stage_job"
# In seconds. Without news of the error the others would wait for comm.timeout, which is longer.
SOON = 15


class StageFaults(SystemTest):
    def test_every_worker_ends_with_the_error_of_the_stage(self):
        layouts = [(3, 3, "1f1b", "auto"), (4, 2, "gpipe", "auto"), (2, 2, "zbh1", "auto"),
                   (3, 3, "1f1b", "tcp"), (4, 2, "gpipe", "tcp"), (2, 2, "zbh1", "gloo")]
        cases = [(*layout, block, place)
                 for layout in layouts for block in (0, 5) for place in ("forward", "backward")]
        for workers, stages, schedule, backend, block, place in cases:
            with self.subTest(f"{schedule}, {workers} workers, {backend}, block {block}, {place}"):
                started = time.monotonic()
                code, out, err = self.run_to_end(
                    TRIREME, "launch", "--workers", workers, "--", STAGE_JOB, stages, schedule,
                    block, place, backend,
                    env=environment(OMP_NUM_THREADS="1", TMPDIR=str(self.folder)))
                self.assertLess(time.monotonic() - started, SOON)
                self.assertNotEqual(code, 0)
                self.assertIn(f"block{block} gives up in {place}", out + err)
                self.assertEqual(processes_that_mention(str(STAGE_JOB)), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
