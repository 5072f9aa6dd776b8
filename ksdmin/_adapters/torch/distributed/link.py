"""The link between the processes: sums over all of them, and what they have to agree on.

Every message of a run is a sum over the processes (an all-reduce), which gives all of them the same
bits. The messages also carry signals of a single process: that it has failed, was interrupted, or
is out of time. A process that has failed goes on with zeros in its messages until all have read the
signal, so that none waits for a missing message. If a process dies, the backend raises in the
others, at once or after the timeout of the group.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from ksdmin._problem.arrays import Small, Space
from ksdmin._problem.counting import Counts
from ksdmin._problem.team import Team, Watch
from ksdmin._problem.values import changed

T = TypeVar("T")

# Each signal is a count of processes, and two share a number, which stays below 2^24: float32 can
# hold it exactly.
MOST_PROCESSES = 2**12 - 1
SHIFT = MOST_PROCESSES + 1
SIGNALS = 2  # numbers behind a vector; behind float64 numbers they are one
PAIR = SHIFT**2


class Link(Team):
    """The processes of a group."""

    def __init__(
        self,
        group: dist.ProcessGroup | None,  # of torch.distributed; None: the default group
        like: Tensor,  # of the dtype and on the device of the model's parameters
    ) -> None:
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise ValueError("process_group: this process is not a member of the group")
        if self.size > MOST_PROCESSES:
            raise ValueError(f"process_group: {self.size} processes, at most {MOST_PROCESSES}")
        self._group, self._device, self._space = group, like.device, Space(like)
        self._watch: Watch | None = None
        self._fault: BaseException | None = None  # of this process, until all know of it
        self._again = False  # whether this process had to make a forward pass again
        # Signals behind products that may still be on their way from the device
        self._pending: deque[tuple[Callable[[], Any], Callable[[], None]]] = deque()

    def for_run(self, watch: Watch) -> Link:
        return changed(self, _watch=watch, _fault=None, _again=False, _pending=deque())

    # Failures

    def attempt(self, action: Callable[[], T], otherwise: Callable[[], T]) -> T:
        """The result of `action`; `otherwise`, if it fails, or something has failed before."""
        if self._fault is None:
            try:
                return action()
            except BaseException as error:  # also Ctrl-C, because the others wait for this process
                self._fault = error
        return otherwise()

    def note_forward_pass(self) -> None:
        """Record that a product of this process had to repeat its forward pass."""
        self._again = True

    def _raise(self) -> None:
        """Raise, because at least one process has failed, and all know it by now."""
        own, self._fault = self._fault, None
        self._again = False
        self._pending.clear()
        told = self.gathered(None if own is None else f"{type(own).__name__}: {own}")
        if own is not None:
            raise own
        failed = [f"rank {rank} raised {text}" for rank, text in enumerate(told) if text]
        raise RuntimeError(
            f"rank {self.rank} of {self.size} ends, as {'; '.join(failed)}. (That process has the "
            "traceback.)"
        )

    # Sums over all processes

    def sum_numbers(self, numbers: Tensor, counts: Counts) -> Tensor:
        """The sums of some float64 numbers, and behind them the signals, for `heed`."""
        first, second = self._signals()
        signals = numbers.new_full((1,), first + PAIR * second)
        return self.sum(torch.cat([numbers, signals]), counts)

    def joint(
        self,
        numbers: Sequence[Tensor],
        vectors: Callable[[Sequence[Tensor]], list[Tensor]],
        counts: Counts,
    ) -> tuple[Sequence[Tensor], list[Tensor]]:
        sums = self.sum_numbers(torch.stack(list(numbers)), counts)
        own = vectors(list(sums[:-1]))
        if own:
            own = list(self.sum(torch.cat(own), counts).reshape(len(own), -1))
        self.heed(float(sums[-1]))
        return list(sums[:-1]), own

    def joint_on_host(
        self,
        numbers: Sequence[Tensor],
        slopes: Tensor,
        finish: Callable[[Any], Tensor],
        counts: Counts,
    ) -> tuple[float, Small]:
        own = torch.cat([torch.stack(list(numbers)), slopes.to(torch.float64)])
        sums, count = self.sum_numbers(own, counts), len(numbers)
        value = finish(list(sums[:count])).reshape(1)
        host = torch.cat([value, sums[count:]]).cpu().numpy()
        self.heed(host[-1])
        return float(host[0]), host[1:-1]

    def joint_product(
        self, product: Tensor, counts: Counts, on_again: Callable[[], None]
    ) -> Tensor:
        """Its signals are read with the next message but one, or the next numbers.

        So the host need not wait for the device.
        """
        message = product.new_empty(product.numel() + SIGNALS)
        message[:-SIGNALS] = product
        for place, signal in enumerate(self._signals()):
            message[place - SIGNALS] = signal
        self.sum(message, counts)
        self._pending.append((self._space.to_host_async(message[-SIGNALS:]), on_again))
        while len(self._pending) > int(self._space.remote):
            self._heed_first()
        return message[:-SIGNALS]

    def joint_parts(self, arrays: Sequence[Tensor], counts: Counts) -> Sequence[Tensor]:
        numbers = self.sum_numbers(arrays[0].new_zeros(0, dtype=torch.float64), counts)
        for array in arrays:
            self.sum(array, counts)
        self.heed(float(numbers[-1]))
        return arrays

    def sum(self, message: Tensor, counts: Counts) -> Tensor:
        """The sum itself, in place."""
        self._reduce(message, dist.ReduceOp.SUM)
        counts.add_message(message.numel() * message.element_size())
        return message

    def _signals(self) -> tuple[int, int]:
        interrupted, out_of_time = (False, False) if self._watch is None else self._watch.wishes()
        again, self._again = self._again, False
        late = out_of_time and self.is_first
        return (self._fault is not None) + SHIFT * again, interrupted + SHIFT * late

    def heed(self, signals: float) -> None:
        """Read the signals that follow numbers."""
        while self._pending:
            self._heed_first()
        self._heed(*reversed(divmod(int(signals), PAIR)))

    def _heed_first(self) -> None:
        fetch, on_again = self._pending.popleft()
        if self._heed(*map(int, fetch()[0])):
            on_again()

    def _heed(self, first: int, second: int) -> bool:
        """Act on signals; returns whether any process had to repeat a forward pass."""
        again, failed = divmod(first, SHIFT)
        late, interrupted = divmod(second, SHIFT)
        if failed:
            self._raise()
        if self._watch is not None:
            self._watch.agree(interrupted > 0, late > 0)
        return again > 0

    # What the core asks of a team

    def together(self, action: Callable[[], T]) -> T:
        out: Any = self.attempt(action, lambda: None)
        self._agree([])
        made: T = out
        return made

    def agreed(self, look: Callable[[], int | None], marks: Sequence[float]) -> int | None:
        number = self.attempt(look, lambda: None)
        digest = blake2b(repr([float(mark) for mark in marks]).encode(), digest_size=6).digest()
        mark = float(int.from_bytes(digest, "little"))
        found, high, low = self._agree([-1.0 if number is None else float(number), mark, -mark])
        if high != -low:
            raise RuntimeError(
                f"rank {self.rank}: the processes of the group have come to different points, "
                "though all got the same sums: they must run on the same kind of machine, with the "
                "same number of threads (OMP_NUM_THREADS) and the same versions"
            )
        return None if found < 0 else int(found)

    def _agree(self, numbers: list[float]) -> list[float]:
        """The largest of each number in all processes, if none has failed."""
        failed = float(self._fault is not None)
        message = torch.tensor([failed, *numbers], dtype=torch.float64, device=self._device)
        self._reduce(message, dist.ReduceOp.MAX)
        failed, *largest = message.tolist()
        if failed:
            self._raise()
        return largest

    def from_first(self, thing: T) -> T:
        first = 0 if self._group is None else dist.get_global_rank(self._group, 0)
        if isinstance(thing, Tensor):
            out: Any = thing.detach().clone()
            self._call(lambda: dist.broadcast(out, first, group=self._group))
            return out  # type: ignore[no-any-return]
        box = [thing]
        self._call(lambda: dist.broadcast_object_list(box, first, group=self._group))
        return box[0]

    def gathered(self, thing: T) -> list[T]:
        """What each process has; anything that can be pickled."""
        out: list[Any] = [None] * self.size
        self._call(lambda: dist.all_gather_object(out, thing, group=self._group))
        return out

    def require_same(self, things: Mapping[str, Any]) -> None:
        own = {name: repr(thing) for name, thing in things.items()}
        others = self.gathered(own)
        for rank, theirs in enumerate(others):
            for name, value in others[0].items():
                if theirs.get(name) != value:
                    raise ValueError(
                        f"{name} must be the same in all processes of the group: {value} on rank "
                        f"0, {theirs.get(name)} on rank {rank}"
                    )

    def _reduce(self, message: Tensor, operation: Any) -> None:
        self._call(lambda: dist.all_reduce(message, operation, group=self._group))

    def _call(self, collective: Callable[[], Any]) -> None:
        """Call a function of torch.distributed, and explain its failure."""
        try:
            if self._device.type == "cuda":
                with torch.cuda.device(self._device):
                    collective()
            else:
                collective()
        except RuntimeError as error:
            raise RuntimeError(
                f"rank {self.rank} of {self.size} cannot reach the other processes of the group: "
                "one of them has died, or has not got this far within the timeout of the group, or "
                f"the backend does not serve {self._device.type} tensors. A saved run goes on "
                f"with ksdmin.resume, also with fewer processes. ({error})"
            ) from error
