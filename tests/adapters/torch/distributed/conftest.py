"""Two ranks for all tests of a file; four in the full tier."""

import pytest

from tests.adapters.torch.distributed.ranks import Ranks

pytest.importorskip("torch")


@pytest.fixture(scope="session")
def two(tmp_path_factory):
    with Ranks(2, tmp_path_factory.mktemp("two")) as ranks:
        yield ranks


@pytest.fixture(scope="session", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def ranks(request, tmp_path_factory):
    if request.param == 2:
        yield request.getfixturevalue("two")
        return
    with Ranks(request.param, tmp_path_factory.mktemp("ranks")) as ranks:
        yield ranks
