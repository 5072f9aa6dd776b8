"""Processes of torch.distributed (gloo) that call what a test hands them."""

import os
import traceback
from datetime import timedelta
from multiprocessing import get_context

SECONDS = 180.0  # that a call may take, on a busy machine; nothing is measured by it
TIMEOUT = 20.0  # of the group


class Failed(Exception):
    """What a rank raised: its text holds the type and the message."""


def serve(rank, size, store, timeout, connection):
    """A rank: it calls functions as function(rank, size, *args) until there are no more."""
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout),
    )
    while True:
        try:
            function, args = connection.recv()
        except EOFError:
            return
        try:
            connection.send((True, function(rank, size, *args)))
        except BaseException as error:
            text = "".join(traceback.format_exception_only(error)).strip()
            connection.send((False, text))


class Ranks:
    """Some processes that are one group; a context."""

    def __init__(self, size, folder, timeout=TIMEOUT):
        context = get_context("spawn")
        self.size, self._ends, self.processes = size, [], []
        for rank in range(size):
            mine, theirs = context.Pipe()
            args = rank, size, str(folder / "store"), timeout, theirs
            process = context.Process(target=serve, args=args)
            process.start()
            theirs.close()
            self._ends.append(mine)
            self.processes.append(process)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for end in self._ends:
            end.close()
        for process in self.processes:
            process.join(5)
            if process.is_alive():
                process.kill()

    def start(self, function, *args):
        """Let all ranks begin; `received` gets what one returns."""
        for end in self._ends:
            end.send((function, args))

    def received(self, rank):
        """What a rank returned; a `Failed` where it raised."""
        if not self._ends[rank].poll(SECONDS):
            raise TimeoutError(f"rank {rank} has not answered")
        fine, out = self._ends[rank].recv()
        return out if fine else Failed(out)

    def outcomes(self, function, *args):
        """What each rank returned, or a `Failed`."""
        self.start(function, *args)
        return [self.received(rank) for rank in range(self.size)]

    def __call__(self, function, *args):
        """What each rank returned; none may raise."""
        outcomes = self.outcomes(function, *args)
        for outcome in outcomes:
            if isinstance(outcome, Failed):
                raise outcome
        return outcomes
