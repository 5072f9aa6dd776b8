"""What a CUDA graph reads, and how it is compared with eager execution: that needs no device."""

from contextlib import nullcontext
from unittest.mock import Mock

import pytest
import torch

from ksdmin._adapters.torch import cuda_graphs
from ksdmin._adapters.torch.cuda_graphs import buffers_and_probe, compare, fill, nearby


@pytest.mark.parametrize("rows", [6, 8])
def test_buffers_are_a_copy_of_the_samples(rows):
    """What is filled in later must not be written into the data, or the weights."""
    chunk = torch.ones(6, 2), torch.ones(6), torch.ones(6)
    buffers, _, _ = buffers_and_probe(chunk, rows)
    fill(buffers, (torch.zeros(4, 2), torch.zeros(4), torch.zeros(rows)))
    for part in chunk:
        assert (part == 1).all()
    for buffer in buffers:
        assert len(buffer) == rows
        assert (buffer == 0).all()


def test_fields_go_where_their_names_say():
    """Whatever order a batch has them in."""
    buffers = ({"a": torch.zeros(3), "b": torch.zeros(3)}, torch.zeros(3), torch.zeros(3))
    one, two = torch.ones(3), torch.full((3,), 2.0)
    fill(buffers, ({"b": two, "a": one}, one, one))
    assert (buffers[0]["a"] == 1).all()
    assert (buffers[0]["b"] == 2).all()


@pytest.mark.parametrize(
    ("rounding", "accepted"), [(0.0, False), (1e-3, False), (0.1, True), (torch.inf, False)]
)
def test_a_graph_may_differ_as_rounding_does(rounding, accepted):
    """A gradient close to a minimum is mostly rounding."""
    eager = torch.ones(10)
    replayed = eager + 0.05
    if accepted:
        compare(replayed, eager, lambda: eager + rounding)
    else:
        with pytest.raises(RuntimeError, match=r"differs from eager by 1\.6e-01"):
            compare(replayed, eager, lambda: eager + rounding)


def test_a_small_difference_needs_no_excuse():
    def never():
        raise AssertionError("asked for")

    eager = torch.ones(10)
    compare(eager + 1e-3, eager, never)
    compare(eager, torch.full((10,), torch.inf), never)  # nothing to compare with


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float32, 6e-8), (torch.float64, 1.1e-16)])
def test_a_point_as_far_away_as_rounding(dtype, unit):
    x = torch.ones(1000, dtype=dtype)
    away = float((nearby(x).double() - x.double()).square().mean().sqrt())
    assert unit / 2 < away < 3 * unit
    assert (nearby(x) == nearby(x)).all()


def test_with_bfloat16_that_is_far():
    x = torch.ones(1000)
    with torch.autocast("cpu", torch.bfloat16):
        assert 2e-3 < float((nearby(x) - x).std()) < 6e-3


def test_the_device_of_the_model_is_meant_not_the_current_one(monkeypatch):
    """As with two GPUs, of which the first is current: here nothing is launched."""
    second, generators = torch.device("cuda:1"), [Mock(), Mock()]
    asked = Mock(return_value=Mock())
    monkeypatch.setattr(torch.cuda, "current_stream", asked)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "default_generators", generators)
    monkeypatch.setattr(torch.cuda, "stream", lambda *args, **kwargs: nullcontext())
    monkeypatch.setattr(cuda_graphs, "recording", lambda *args: nullcontext())
    monkeypatch.setattr(cuda_graphs, "_no_waiting", nullcontext)
    monkeypatch.setattr(cuda_graphs, "side_stream", lambda device: Mock(device=device))
    cuda_graphs.warm_up(lambda: None, second)
    asked.assert_called_once_with(second)
    with pytest.raises(ZeroDivisionError), cuda_graphs.captured(Mock(), second):
        raise ZeroDivisionError
    generators[1].graphsafe_set_state.assert_called_once()
    generators[0].graphsafe_set_state.assert_not_called()
