"""Steps of Lanczos' recurrence that a CUDA device is told once and then repeats."""

import copy
import pickle

import numpy as np
import pytest

from ksdmin._ksd.krylov import Rows, krylov_basis
from ksdmin._ksd.precond import IDENTITY, Preconditioner
from ksdmin._ksd.recorded import RecordedRows, Workspace
from ksdmin._problem.arrays import Space

torch = pytest.importorskip("torch")
K = 12


def random_problem(seed, device, n=300, dtype=torch.float64):
    generator = torch.Generator(device).manual_seed(seed)
    options = {"generator": generator, "device": device, "dtype": dtype}
    root = torch.randn(n, n, **options)
    H, g = root @ root.T / n, torch.randn(n, **options)
    return H, g, torch.rand(n, **options) + 0.5


def basis(H, g, P, workspace=None, K=K):
    return krylov_basis(
        Space(g),
        g,
        P,
        lambda v: H @ v,
        (),
        K,
        lambda _: False,
        ahead=True,
        rows_of=workspace and workspace.rows,
    )


def test_with_numpy_bases_share_their_room():
    """And are the same as in room of their own, whatever was in it before."""
    workspace, space = Workspace(), Space(np.ones(300))
    room = None
    for seed, dim in enumerate((K, K - 3, K)):
        H, g, D = (tensor.numpy() for tensor in random_problem(seed, "cpu"))
        for P in (Preconditioner.diagonal(D), Preconditioner(lambda w, D=D: w / D)):
            own, shared = basis(H, g, P, K=dim), basis(H, g, P, workspace, K=dim)
            assert (own.V == shared.V).all()
            assert (own.H_bar == shared.H_bar).all()
            assert (own.products(np.eye(dim)) == shared.products(np.eye(dim))).all()
            assert room is None or np.shares_memory(room, shared.V)
            room = shared.V
    assert workspace.rows(space, IDENTITY, K + 1).V.shape[0] == K + 1
    assert not np.shares_memory(room, workspace.rows(space, IDENTITY, K + 1).V)


@pytest.mark.cuda
@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_recorded_steps_are_the_same(diagonal, dtype):
    """Bit for bit, while the matrix, the gradient and P change from basis to basis."""
    workspace = Workspace()
    for seed in range(4):
        H, g, D = random_problem(seed, "cuda", dtype=dtype)
        P = Preconditioner.diagonal(D if diagonal else None)
        eager, recorded = basis(H, g, P), basis(H, g, P, workspace)
        assert torch.equal(eager.V, recorded.V)
        assert (eager.H_bar == recorded.H_bar).all()
        E = torch.eye(eager.dim, dtype=torch.float64).numpy()
        assert torch.equal(eager.products(E), recorded.products(E))


@pytest.mark.cuda
def test_room_is_made_where_it_is_too_small_or_of_another_kind():
    _, g, D = random_problem(0, "cuda")
    workspace, space, P = Workspace(), Space(g), Preconditioner.diagonal(D)
    first = workspace.rows(space, P, K)
    assert isinstance(first, RecordedRows)
    assert workspace.rows(space, P, K - 3) is first
    wider = workspace.rows(space, P, K + 1)
    assert wider is not first
    assert workspace.rows(space, IDENTITY, K) is not wider
    assert type(workspace.rows(space, Preconditioner(P.solve, P.times), K)) is Rows


@pytest.mark.cuda
def test_graphs_take_no_memory_for_each_row():
    """n is so large that vectors are what takes memory."""
    n, rows = 2**20, 40
    g = torch.ones(n, device="cuda")
    curvatures = torch.linspace(1, 2, n, device="cuda")
    workspace, taken = Workspace(), []
    for _ in range(4):
        krylov_basis(
            *(Space(g), g, IDENTITY, lambda v: curvatures * v, (), rows, lambda _: False),
            ahead=True,
            rows_of=workspace.rows,
        )
        torch.cuda.synchronize()
        taken.append(torch.cuda.memory_reserved())
    assert taken[-1] - taken[0] < 10 * 4 * n + 2**26  # libraries have room of their own, too


@pytest.mark.cuda
def test_a_copy_records_its_own():
    H, g, D = random_problem(0, "cuda")
    workspace, P = Workspace(), Preconditioner.diagonal(D)
    expected = [basis(H, g, P, workspace).H_bar for _ in range(3)]
    for other in (copy.deepcopy(workspace), pickle.loads(pickle.dumps(workspace))):
        assert (basis(H, g, P, other).H_bar == expected[0]).all()
