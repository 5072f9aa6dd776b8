"""What travels between the processes: the formula of docs/distributed.md, and the counter."""

from unittest.mock import patch

import numpy as np
import pytest

from ksdmin._problem.counting import Counts
from tests.adapters.torch.distributed import cases

ITEMSIZE = 8


def expected_bytes(n, dim, gradients, values, products, inner):
    """What an iteration sends, and in how many messages, where every gradient has a diagonal."""
    payload = gradients * (16 + 2 * ITEMSIZE * n) + 16 * values
    payload += products * ITEMSIZE * (n + 2) + inner * 8 * (dim + 2)
    return payload, 2 * gradients + values + products + inner


def iterations(outcome):
    """What each iteration has spent: a dict of differences between lines of the history."""
    history = outcome["history"]
    spent = {
        name: np.diff(history[name])
        for name in ("nfev", "njev", "nhev", "reductions", "reduced_bytes")
    }
    for i, dim in enumerate(history["dim"][1:]):
        yield int(dim), {name: int(column[i]) for name, column in spent.items()}


@pytest.mark.parametrize("sizes", [(0.6, 0.2, 0.2), (1.0, 1.0, 1.0, False)])
def test_payload_and_messages_are_those_of_the_formula(two, sizes):
    """In the search, 8 bytes for each basis vector, one for the value and one for the signals."""
    options = {"maxiter": 3, "pairs": 0, "without": ["gauss-newton", "set_sizes", "forcing"]}
    n = cases.problem().x0.numel()
    outcomes = two(cases.run_in_group, "net", options, sizes)
    for dim, spent in iterations(outcomes[0]):
        inner = spent["njev"] - 1  # one gradient, with the diagonal, of the next set A
        values = spent["nfev"] - spent["njev"]  # that of the old point on the new set
        expected = expected_bytes(n, dim, 1, values, spent["nhev"], inner)
        assert (spent["reduced_bytes"], spent["reductions"]) == expected
        assert inner >= 1
        assert spent["nhev"] >= 3 or dim < 3
    np.testing.assert_array_equal(
        outcomes[0]["history"]["reduced_bytes"], outcomes[1]["history"]["reduced_bytes"]
    )


def test_an_estimated_diagonal_travels_without_its_gradient(two):
    """That of a convolution is estimated from 256 samples, where there are so many."""
    n, spent = two(estimated)[0]
    assert spent == (4, 16 + ITEMSIZE * n + 8 + ITEMSIZE * n)


def estimated(rank, size):
    problem, counts = cases.grouped("embedding", rank, size), Counts()
    with patch.object(problem._sums, "max_diagonal_samples", 30):
        x = problem.x0
        problem.counting(counts).value_and_gradient(x, slice(None), diagonal=True)
    return x.numel(), (counts.reductions, counts.reduced_bytes)


@pytest.mark.parametrize("kind", ["wide", "medium"])
def test_a_gauss_newton_step_sends_rows_once_and_residuals_for_each_point(two, kind):
    n, rows = cases.problem(kind).x0.numel(), cases.N  # one residual a sample
    for _, spent in iterations(two(cases.run_in_group, kind, {"maxiter": 4})[0]):
        gradients, points = spent["njev"], spent["nfev"] - spent["njev"]
        assert gradients == 1
        assert points >= 1
        expected = 8 + ITEMSIZE * rows * (n + 2)  # with a slope and a root for each row
        expected += 16 + ITEMSIZE * n + points * (16 + ITEMSIZE * rows)
        assert spent["reduced_bytes"] == expected
        assert spent["reductions"] == 4 + 2 + 2 * points


def test_what_damped_and_exact_steps_of_blocks_send(two):
    """Rows for a net, the matrix for a linear model."""
    wide, linear = (cases.problem(kind).x0.numel() for kind in ("wide blocks", "linear blocks"))
    rows = 2 * cases.POINTS + cases.EDGES + 4 * 40
    found = two(cases.payload, "wide blocks", "jacobian")[0]
    assert found == (3, 8 + ITEMSIZE * rows * (wide + 1))
    assert two(cases.payload, "linear blocks", "matrix")[0] == (2, 8 + ITEMSIZE * linear**2)
