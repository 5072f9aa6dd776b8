"""The recorder that all runs pass through: its clock, its counts, its limits."""

import pytest

from examples.harness.recorder import Clock, Recorder, Spent, Work


def test_a_product_counts_as_two_passes():
    work = Work()
    work.count(values=1, gradients=1)
    work.count(products=3)
    assert work == Work(values=1, gradients=1, products=3, passes=8)


def test_what_happens_while_the_clock_is_paused_takes_no_time():
    now = 5.0
    clock = Clock(lambda: now)
    now += 2.0
    with clock.paused():
        now += 100.0
    assert clock.seconds == 2.0


def test_a_run_ends_at_its_limit_of_passes_or_seconds():
    recorder = Recorder(passes=2)
    recorder.check()
    recorder.work.count(products=1)
    with pytest.raises(Spent, match="limit of passes"):
        recorder.check()
    assert Recorder(seconds=0).spent() == "The time limit has been reached."


def test_no_method_catches_the_end_of_a_run():
    assert not issubclass(Spent, Exception)
