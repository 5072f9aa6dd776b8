"""Training nets: updates of the first-order methods."""

import torch

from examples.harness.net_training.adam_and_nesterov import Nesterov


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
