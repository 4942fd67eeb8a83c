"""All ranks of a job, and a model that they train together."""

import ctypes
import hashlib
import sys
import weakref

from ._checks import Checks, Updates
from ._library import DISMISSED, Error, check, free, library, pointers_to, view_of

_OPS = {"sum": 0, "mean": 1, "max": 2, "min": 3}


class World:
    """All ranks of the job, as one of them sees them. One thread at a time uses it."""

    def __init__(self):
        self._handle = ctypes.c_void_p()
        self._replicas = 0
        # The batch that share() divided: the samples of this rank's part, and its fraction.
        self._shared, self._weight = None, None
        self._backward, self._reached = None, {}
        self._living, self._updates = weakref.WeakSet(), Updates()
        check(library().trireme_world_join(ctypes.byref(self._handle)))

    @property
    def rank(self):
        return library().trireme_world_rank(self._handle)

    @property
    def size(self):
        return library().trireme_world_size(self._handle)

    @property
    def is_elastic(self):
        """Whether the number of workers may change while the job runs."""
        return library().trireme_world_is_elastic(self._handle) == 1

    def share(self, batch):
        """This rank's part of a global batch, as a range of samples. Gradients count by it from now
        on, unless they are switched off (torch.no_grad), as in an evaluation."""
        first, count = ctypes.c_int64(), ctypes.c_int64()
        check(library().trireme_world_share(self._handle, batch, ctypes.byref(first),
                                              ctypes.byref(count)))
        import torch
        if torch.is_grad_enabled():
            weight = count.value / batch
            for replica in self._living:
                replica._weigh_own_sum(weight)
            self._shared, self._weight = count.value, weight
        return range(first.value, first.value + count.value)

    def all_reduce(self, tensor, op="sum"):
        """COLLECTIVE. In place: `sum`, `mean`, `max` or `min` over the ranks."""
        view = view_of(tensor)
        check(library().trireme_all_reduce(self._handle, ctypes.byref(view), _OPS[op]))
        return tensor

    def broadcast(self, tensor, root=0):
        """COLLECTIVE. In place."""
        view = view_of(tensor)
        check(library().trireme_broadcast(self._handle, ctypes.byref(view), root))
        return tensor

    def barrier(self):
        check(library().trireme_barrier(self._handle))

    def leave(self):
        """COLLECTIVE. Says goodbye. Without it the others take this process for lost. The ranks
        compare their parameters a last time; there are no steps behind it."""
        check(library().trireme_world_leave(self._handle))

    def __del__(self):
        free("trireme_world_free", self._handle)

    def _end_with_backward(self, replica):
        """Has the replica's gradients finished when the backward under way ends. All replicas that
        it has reached finish in the order in which they were made, which is the same on all
        ranks. Returns whether this backward has reached the replica for the first time."""
        import torch
        backward = torch._C._current_graph_task_id()
        if self._backward != backward:  # A backward that failed has left its own.
            self._backward, self._reached = backward, {}
            torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)
        is_new = replica._number not in self._reached
        self._reached[replica._number] = replica
        return is_new

    def _end_backward(self):
        reached, self._backward, self._reached = self._reached, None, {}
        for number in sorted(reached):
            reached[number]._finish()


def join():
    """Finds this process's place in its job, and meets the others. Ends the process with exit code
    0 if an elastic job needs no further worker."""
    _end_with_codes_of_errors()
    try:
        return World()
    except Error as error:
        if error.status != DISMISSED:
            raise
        print(error, file=sys.stderr)
        sys.exit(0)


class Replica:
    """Makes the gradients of a model those of the mean over all ranks. distribute() makes it."""

    def __init__(self, world, model, overlap, check_every, nonfinite, own_samples):
        if nonfinite not in ("error", "skip", "keep"):
            raise ValueError(f"nonfinite={nonfinite!r}; try: 'error', 'skip' or 'keep'")
        # Without a number, the samples are those of World.share().
        self.world, self.samples, self.overlap = world, None, overlap
        # A process that joins an elastic job would compare alone.
        self._knows_samples = (own_samples or world.size == 1 or world._replicas > 0
                               or world.is_elastic)
        self.nonfinite_rank = None  # With "skip" or "keep": the rank with such a gradient.
        self._nonfinite = nonfinite
        self._quiet, self._handed_over = False, None
        # Since the last step of the optimizer, if it is known: what backward() has left.
        self._has_means = self._has_own_alone = False
        self._number, world._replicas = world._replicas, world._replicas + 1
        named = [(name, parameter) for name, parameter in model.named_parameters()
                 if parameter.requires_grad]
        self._parameters = [parameter for _, parameter in named]
        # A gradient has the form of its parameter, and each step another place.
        self._views = [view_of(parameter.detach()) for parameter in self._parameters]
        names = (ctypes.c_char_p * len(named))(*[name.encode() for name, _ in named])
        self._handle = ctypes.c_void_p()
        check(library().trireme_gradients_new(
            world._handle, pointers_to(self._views), names, len(named),
            ctypes.byref(self._handle)))
        self._checks = Checks(self._handle, model, named, world._living)
        world._living.add(self)
        check(library().trireme_gradients_check_every(self._handle, check_every))
        check(library().trireme_gradients_skip_nonfinite(self._handle, nonfinite != "error"))
        if not world.is_elastic:  # There newcomers join in; State gives them the buffers.
            for buffer in model.buffers():
                world.broadcast(buffer)
        for index, parameter in enumerate(self._parameters):
            parameter.register_post_accumulate_grad_hook(
                lambda parameter, index=index: self._ready(index, parameter))

    @property
    def buckets(self):
        """The number of messages in which the gradients travel."""
        return library().trireme_gradients_buckets(self._handle)

    @property
    def sent_early(self):
        """The number of those that left while the last backward ran. Processes that share a host
        exchange through memory, and do it at the end."""
        return library().trireme_gradients_sent_early(self._handle)

    @property
    def model(self):
        return self._checks.model

    def follow(self, optimizer):
        """From now on the ranks compare the optimizer's options, and step() needs a backward()."""
        self._checks.follow(optimizer)
        self.world._updates.follow(optimizer, self)

    def _ready(self, index, parameter):
        if self._quiet:
            self._has_own_alone = True
            return
        if self.world._end_with_backward(self):
            self._handed_over = None
        if self.overlap:
            self._hand_over(index, parameter.grad)

    def _weigh_own_sum(self, next_weight):
        """A sum under no_sync() has the weights of its batches: the next batch may have another
        one, by which the whole sum will be multiplied."""
        now = self.world._weight
        if not self._has_own_alone or self.samples is not None or now in (None, next_weight):
            return
        import torch
        with torch.no_grad():
            for parameter in self._parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(now / next_weight)

    def _hand_over(self, index, gradient):
        if self._handed_over is None:
            self._checks.before_step()
            samples = self.world._shared or 1 if self.samples is None else self.samples
            check(library().trireme_gradients_begin(self._handle, samples))
            self._handed_over = {}
        if not gradient.is_contiguous():
            gradient = self._parameters[index].grad = gradient.contiguous()
        view = self._views[index]
        if gradient.dtype is self._parameters[index].dtype:
            view.data = gradient.data_ptr()
        else:
            view = view_of(gradient)  # It is refused.
        check(library().trireme_gradients_ready(self._handle, index, ctypes.byref(view)))
        self._handed_over[index] = gradient

    def _finish(self):
        import torch
        missing = {}
        for index, parameter in enumerate(self._parameters):
            if self._handed_over is None or index not in self._handed_over:
                gradient = parameter.grad
                if gradient is None:  # Another rank may have one.
                    gradient = missing[index] = torch.zeros_like(
                        parameter, memory_format=torch.contiguous_format)
                self._hand_over(index, gradient)
        own = self._digest_of_samples()
        check(library().trireme_gradients_finish(self._handle))
        if own is not None:
            self._refuse_same_samples(own)
        self._handed_over = None
        self._has_means, self._has_own_alone = True, False
        for index, gradient in missing.items():
            if gradient.any():
                self._parameters[index].grad = gradient.detach()
        self._checks.behind_step(missing.keys())
        if self._nonfinite != "error":
            rank = library().trireme_gradients_nonfinite_rank(self._handle)
            self.nonfinite_rank = rank if rank >= 0 else None
            if rank >= 0 and self._nonfinite == "skip":
                for parameter in self._parameters:
                    parameter.grad = None

    def _digest_of_samples(self):
        """That of the first gradients, before they become means; None if nothing is to be found."""
        if self._knows_samples or self.world._shared or self.samples is not None:
            return None
        import torch
        self._knows_samples = True
        digest = hashlib.sha256()
        for gradient in self._handed_over.values():
            digest.update(gradient.detach().view(-1).view(torch.uint8).numpy())
        return int.from_bytes(digest.digest()[:6], "little")

    def _refuse_same_samples(self, own):
        """COLLECTIVE."""
        import torch
        largest = torch.tensor([own, -own])
        self.world.all_reduce(largest, "max")
        if largest[0] == -largest[1]:
            self._checks.refuse(
                "all ranks have computed the same gradients, bit for bit: they read the same "
                "samples", "World.share(), or a sampler that knows the rank. "
                "distribute(own_samples=True) if the ranks are to read the same")

    def no_sync(self):
        """`with replica.no_sync():` backward() adds to this rank's gradients alone."""
        replica = self

        class Quiet:
            def __enter__(self):
                replica._quiet = True

            def __exit__(self, *_):
                replica._quiet = False

        return Quiet()

    def __del__(self):
        free("trireme_gradients_free", getattr(self, "_handle", None))


def distribute(world, model, overlap=True, optimizer=None, check_every=64, nonfinite="error",
               own_samples=False):
    """COLLECTIVE. Gives all ranks rank 0's parameters and buffers. From now on every .grad is the
    mean over all ranks at the end of backward(). Gradients count by the samples of World.share(),
    or by those that `samples` of the result says. Where nothing says it they count alike, and it is
    an error if all ranks compute the same first gradients, unless own_samples is true (an elastic
    job is not looked at). Gradients travel while backward computes others; with overlap=False they
    travel at its end, as those of a parameter must that gets several gradients in one backward.

    A mistake of one rank raises an Error on all ranks, which names rank and step
    (docs/languages.md). The ranks compare a digest of their parameters in the first two steps, in
    each `check_every`-th step, and in leave(); 0: never. With `optimizer`, or follow() of the
    result, they also compare its options in each step. A gradient that is NaN or infinite is an
    error. With nonfinite="skip" every .grad is None then, so that the optimizer updates nothing,
    and `nonfinite_rank` of the result names the rank; with "keep" the gradients stay as they are,
    for a torch.amp.GradScaler."""
    replica = Replica(world, model, overlap, check_every, nonfinite, own_samples)
    if optimizer is not None:
        replica.follow(optimizer)
    return replica


def _end_with_codes_of_errors():
    """An Error that nothing catches ends the process with its exit code."""
    before = sys.excepthook
    if getattr(before, "is_of_trireme", False) or hasattr(sys, "ps1"):
        return

    def hook(kind, error, trace):
        before(kind, error, trace)
        if isinstance(error, Error):
            raise SystemExit(error.exit_code)

    hook.is_of_trireme = True
    sys.excepthook = hook
