"""A process that ends while a thread fetches samples: it ends as it was told to."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

SCRIPT = """
import sys, torch, ksdmin

class Slow(torch.utils.data.Dataset):
    begun = False

    def __len__(self):
        return 400

    def __getitem__(self, i):
        if Slow.begun:
            for _ in range(400):
                torch.ones(60, 60).sin_()
        return torch.full((3,), i / 400), torch.ones(1)

class Ends(torch.nn.Linear):
    def forward(self, x):
        if Slow.begun:
            sys.exit(0)  # the next chunks are on their way
        return super().forward(x)

net, loss = Ends(3, 1), torch.nn.MSELoss()
problem = ksdmin.from_torch(net, loss, Slow(), memory_budget=2000, chunk_size=4)
Slow.begun = True
problem.value(problem.x0)
"""


def test_a_thread_that_fetches_samples_does_not_abort_it():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
