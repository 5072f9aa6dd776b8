"""The reference runs are what they were: bit for bit where the file was made, else roughly."""

import jax
import pytest

from tests.reference_runs import reference
from tests.reference_runs.digest import differences, digest
from tests.reference_runs.fingerprint import fingerprint
from tests.reference_runs.runs import RUNS, execute

FILE = reference.read()
SAME_BITS = FILE["fingerprint"] == fingerprint()


@pytest.fixture(scope="module", autouse=True)
def fresh_jax():
    """What other tests have compiled was compiled with other settings, and may round otherwise."""
    jax.clear_caches()


# Most of the seconds are those of nets: in the fast tier there is one of each kind.
OTHER_NETS = {"net_fisher", "net_l2", "net_dropout", "net_lstm", "net_paper_hessian", "jax_line"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in OTHER_NETS)) for n in RUNS]
)
def test_a_run_is_what_it_was(name):
    expected, found = FILE["runs"][name], digest(execute(name))
    if SAME_BITS:
        assert not differences(expected, found)
    else:
        assert found["status"] == expected["status"]
        rel = 1e-4 if expected["status"] == 0 else 0.2
        # The minimum of some is zero: what rounding leaves of it has no digits in common
        assert found["fun"] == pytest.approx(expected["fun"], rel=rel, abs=1e-6, nan_ok=True)


def test_the_file_has_all_runs():
    assert list(FILE["runs"]) == list(RUNS)
    assert set(RUNS) >= OTHER_NETS
