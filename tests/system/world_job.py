"""A job of the programme world_loop (world_loop.cc). The test follows it by the events that its
processes write."""

import json
import signal

from support import BIN, TRIREME, SystemTest, environment, processes_that_mention, wait_until

WORLD_LOOP = BIN / "world_loop"
# In seconds, on a busy machine. Everything that a test waits for comes within a few.
PATIENCE = 60


class WorldTest(SystemTest):
    def setUp(self):
        super().setUp()
        self.events_file = self.folder / "events"
        self.go = self.folder / "go"
        self.tokens = self.folder / "tokens"
        self.tokens.mkdir(mode=0o700)

    def launch(self, *options, role=(), **variables):
        return self.start(TRIREME, "launch", *options, "--", WORLD_LOOP, self.events_file, self.go,
                          *role, env=environment(XDG_RUNTIME_DIR=str(self.tokens),
                                                 OMP_NUM_THREADS="1", **variables))

    def events(self, kind):
        if not self.events_file.exists():
            return []
        lines = self.events_file.read_text().split("\n")[:-1]
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def wait_for(self, job, condition, what):
        """Waits until `condition` holds, and returns its value. `job`: the launcher that must not
        end before."""
        def holds():
            if job.poll() is not None:
                self.fail(f"the job ended with {job.returncode} before {what}\n"
                          + job.stderr.read())
            return condition()

        return wait_until(holds, PATIENCE, what)

    def generations(self):
        """Returns for each generation whose members all have told their places: its number and
        the processes by their worker's number."""
        told = {}
        for event in self.events("place"):
            told.setdefault(event["generation"], {})[event["worker"]] = event
        whole = []
        for number, places in sorted(told.items()):
            size = next(iter(places.values()))["workers"]
            if len(places) == size:
                whole.append((number, [places[worker]["pid"] for worker in range(size)]))
        return whole

    def wait_for_generation(self, job, size, after=-1):
        """Returns number and processes of the first generation of this size after another one."""
        def found():
            return next((each for each in self.generations()
                         if each[0] > after and len(each[1]) == size), None)

        return self.wait_for(job, found, f"a generation of {size} workers after {after}")

    def end(self, *jobs, code=0, seconds=30):
        """Waits until the jobs have ended with this code; returns what they said. Nothing of them
        is left then."""
        said = ""
        for job in jobs:
            out, err = job.communicate(timeout=seconds)
            self.assertEqual(job.returncode, code, out + err)
            said += err
        self.assert_nothing_left()
        return said

    def assert_nothing_left(self):
        wait_until(lambda: not processes_that_mention(str(self.folder)), 10,
                   "all processes are gone")
        # The next launcher removes the file of a launcher that was killed.
        killed = tuple(f"elastic-{each.pid}." for each in self.started
                       if each.returncode == -signal.SIGKILL)
        self.assertEqual([path for path in self.tokens.rglob("*")
                          if path.is_file() and not path.name.startswith(killed)], [])

    def is_alive(self, pid):
        return any(pid == each for each, _ in processes_that_mention(str(self.folder)))

    def scale(self, workers):
        return self.run_to_end(TRIREME, "scale", workers,
                               env=environment(XDG_RUNTIME_DIR=str(self.tokens)))
