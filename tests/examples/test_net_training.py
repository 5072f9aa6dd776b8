"""Training nets: updates of the first-order methods, timed problems."""

import torch

import ksdmin
from examples.harness.net_training.adam_and_nesterov import Nesterov
from examples.harness.net_training.instrumented_problems import Timed


def test_a_profiled_problem_turns_to_finer_arithmetic_by_the_same_clock():
    samples = torch.randn(20, 3), torch.randn(20, 2)
    problem = ksdmin.from_torch(
        torch.nn.Linear(3, 2), torch.nn.MSELoss(), samples, precision="bfloat16"
    )
    timed = Timed(problem)
    finer = timed.in_finer_arithmetic()
    assert finer.traits.noise < timed.traits.noise
    assert finer._seconds is timed._seconds
    double = finer.in_finer_arithmetic().in_finer_arithmetic()
    assert double.x0.dtype == torch.float64
    assert double.in_finer_arithmetic() is None


def test_nesterov_is_torchs_where_the_momentum_is_constant():
    torch.manual_seed(0)
    A = torch.randn(4, 4)
    ours, theirs = (torch.nn.Parameter(torch.ones(4)) for _ in range(2))
    update = Nesterov([ours], rate=0.01, momentum=0.5)
    optimizer = torch.optim.SGD([theirs], lr=0.01, momentum=0.5, nesterov=True)
    for step in range(20):
        update.plan(step, share=0.0)
        update([A.T @ A @ ours.detach()])
        theirs.grad = A.T @ A @ theirs.detach()
        optimizer.step()
    torch.testing.assert_close(ours.data, theirs.data)
