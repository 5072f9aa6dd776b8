"""What `import ksdmin` brings in, and what it does not."""

import subprocess
import sys

import pytest

import ksdmin
from tests.processes import printed_by


@pytest.fixture(scope="module")
def loaded():
    """The modules that a fresh interpreter has loaded after `import ksdmin`."""
    command = "import sys, ksdmin; print(*sys.modules)"
    return set(printed_by([sys.executable, "-c", command]).split())


@pytest.mark.parametrize("name", ["torch", "autograd", "jax", "matplotlib", "tqdm", "pooch"])
def test_optional_packages_are_not_imported(loaded, name):
    assert "ksdmin" in loaded
    assert name not in loaded


def test_all_is_the_truth():
    assert len(set(ksdmin.__all__)) == len(ksdmin.__all__)
    public = {name for name in vars(ksdmin) if not name.startswith("_")}
    # ksdmin.torch is there once it has been asked for; `import *` must not hide the user's torch.
    assert public - {"plotting", "torch"} == set(ksdmin.__all__)
    for name in ksdmin.__all__:
        thing = getattr(ksdmin, name)
        assert getattr(thing, "__module__", "ksdmin.").startswith("ksdmin.") or name.isupper()


def test_torch_is_imported_when_its_optimizer_is_asked_for():
    pytest.importorskip("torch")
    command = "import sys, ksdmin; print(ksdmin.torch.KSD.__name__, 'torch' in sys.modules)"
    assert printed_by([sys.executable, "-c", command]).split() == ["KSD", "True"]


def test_without_torch_one_is_told_what_to_install():
    command = "import sys; sys.modules['torch'] = None; import ksdmin; ksdmin.torch"
    process = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert process.returncode == 1
    assert "ImportError: ksdmin.torch needs torch: pip install torch" in process.stderr


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("minimise", r"module 'ksdmin' has no attribute 'minimise' \(did you mean 'minimize'\?\)"),
        ("Option", r"module 'ksdmin' has no attribute 'Option' \(did you mean 'Options'\?\)"),
        ("KSD", r"it is ksdmin[.]torch[.]KSD"),
        ("spam", r"has no attribute 'spam'$"),
    ],
)
def test_a_name_that_does_not_exist(name, told):
    """It is told what it may mean; doctest and inspect ask for others, too."""
    with pytest.raises(AttributeError, match=told):
        getattr(ksdmin, name)
    assert not hasattr(ksdmin, "__wrapped__")
