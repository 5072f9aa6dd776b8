"""What is recorded is not disturbed: that needs no device."""

import gc
import threading

import pytest

pytest.importorskip("torch")
from ksdmin._libraries.torch import SIDE, undisturbed


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_collected_again_afterwards(enabled):
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with undisturbed(), undisturbed():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
        with pytest.raises(ZeroDivisionError), undisturbed():
            1 / 0  # noqa: B018
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_another_thread_waits():
    """It would leave the collector off, if it saw it off and came last."""
    turns = []

    def other():
        with undisturbed():
            turns.append("other")

    with undisturbed():
        thread = threading.Thread(target=other)
        thread.start()
        assert not thread.join(0.05)
        turns.append("first")
    thread.join()
    assert turns == ["first", "other"]
    assert gc.isenabled()
    assert SIDE.acquire(blocking=False)
    SIDE.release()
