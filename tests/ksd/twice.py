"""Steps that are taken twice: what a step gives depends on the state alone."""

from tests.ksd.snapshots import snapshot


class Twice:
    """A method's step, taken twice from each state, which it must not change."""

    def __init__(self, step):
        self.step, self.taken = step, []

    def __call__(self, run, state):
        before, first = snapshot(state), self.step(run, state)
        again = self.step(run, state)
        assert snapshot(state) == before
        assert_same(first, again)
        self.taken.append((run, state, first))
        return first

    def take_again(self):
        """Once more after the run, from the last state back to the first."""
        for run, state, after in reversed(self.taken):
            assert_same(self.step(run, state), after)

    @property
    def states(self):
        return [after for *_, after in self.taken]


def assert_same(state, other):
    assert snapshot(state) == snapshot(other)
    assert state.curvature_is_sampled is other.curvature_is_sampled  # by identity of the sets
