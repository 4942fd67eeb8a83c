"""The base of tests that train in Python's PyTorch as Trireme does: from the same weights, on the
same batches, under torchrun and Gloo."""

import json
import pathlib
import sys

from support import DIGITS, ROOT, TRIREME, SystemTest, environment


class TorchPeer(SystemTest):
    def prepare(self, *words, steps, name="initial"):
        """Saves the initial weights of a training, and its first `steps` batches. Returns the
        settings with which a case of `python_losses` finds them."""
        initial = self.train(*words, "--set", "train.steps=0", name=name)
        code, out, err = self.run_to_end(TRIREME, "plan", DIGITS, *words, "--batches", steps,
                                         "--json")
        self.assertEqual(code, 0, err)
        plan = self.folder / f"{name}-plan.json"
        plan.write_text(out)
        return {"weights": str(pathlib.Path(initial["checkpoint"]) / "model.safetensors"),
                "plan": str(plan)}

    def python_losses(self, programme, ranks, cases):
        """Trains each of `cases` (name -> settings) with a programme of this folder. Returns
        name -> losses. All cases share one start, because Python takes seconds to import torch."""
        job, output = self.folder / "job.json", self.folder / "python-losses.json"
        job.write_text(json.dumps(cases))
        # Without the address the ranks meet at the name of the host, which may not lead to it.
        code, out, err = self.run_to_end(
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr",
            "127.0.0.1", "--nproc-per-node", ranks, ROOT / "tests" / "system" / programme, job,
            output, timeout=240,
            env=environment(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo"))
        self.assertEqual(code, 0, f"{out}\n{err}")
        return json.loads(output.read_text())
