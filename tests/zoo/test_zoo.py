"""Every entry of the zoo: values, gradients, products, a short run, and the way back."""

import warnings
from contextlib import nullcontext
from functools import cache

import numpy as np
import pytest
import torch

import ksdmin
from ksdmin._problem.arrays import to_host
from tests.adapters.functional.backends import jax_settings
from tests.zoo.entries import ENTRIES

pytestmark = [
    # Said by torch itself, of its own forward-mode differentiation and of scripted modules
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated"),
]

TOLERANCE = 1e-9  # of the largest entry
# Torch's CUDA kernel of weight_norm has float32 numbers in float64 arithmetic.
COARSE_ON_CUDA = {
    "weight_norm_parametrization": 1e-6,
    "old_weight_norm": 1e-6,
}


def named(choose):
    entries = [entry for entry in ENTRIES.values() if choose(entry)]
    params = [pytest.param(entry.name, marks=entry.marks) for entry in entries]
    return pytest.mark.parametrize("name", params)


every = named(lambda entry: True)
of_torch = named(lambda entry: entry.library == "torch")


@pytest.fixture(autouse=True)
def _float64(request):
    """Jax in float64, for its entries."""
    entry = ENTRIES[request.node.callspec.params["name"]]
    with jax_settings(x64=True) if entry.library == "jax" else nullcontext():
        yield


@cache
def specimen(name):
    return ENTRIES[name].make("cpu")


@cache
def problem(name, curvature=None):
    return specimen(name).problem(**({} if curvature is None else {"curvature": curvature}))


@cache
def point(name):
    """Away from x0, as a host vector."""
    x0 = to_host(problem(name).x0)
    return x0 + 0.1 * np.random.default_rng(0).standard_normal(x0.size)


def of_torchs(name):
    return ENTRIES[name].library == "torch"


def draws(name):
    return getattr(specimen(name), "draws", False)


def directions(n, count=3):
    return np.random.default_rng(1).standard_normal((count, n))


def assert_close(found, wanted, tolerance=TOLERANCE):
    difference = np.max(np.abs(to_host(found) - wanted), initial=0.0)
    assert difference <= tolerance * np.max(np.abs(wanted), initial=1e-300), difference


def differences(value_and_gradient, x, v, h=1e-5):
    """The derivatives along v of a value and a gradient."""
    above, below = value_and_gradient(x + h * v), value_and_gradient(x - h * v)
    return [(a - b) / (2 * h) for a, b in zip(above, below, strict=True)]


def check_values(one, name):
    """The value is the objective's, where others know it, and the gradient has its slope."""
    x, v = point(name), directions(len(point(name)))[0]
    value, g = host_pair(one, x)
    assert one.value(one._to_device(x)) == pytest.approx(value, rel=1e-12)
    if not draws(name):
        at = torch.from_numpy(x) if of_torchs(name) else one.unflatten(x)
        assert value == pytest.approx(specimen(name).objective(at).item(), rel=TOLERANCE)
    slope, _ = differences(lambda x: host_pair(one, x), x, v)
    assert abs(g @ v - slope) <= 1e-7 * np.linalg.norm(g) * np.linalg.norm(v)


def host_pair(one, x):
    value, g = one.value_and_gradient(one._to_device(x))
    return value, to_host(g)


def check_hessian(one, name):
    """Symmetric, and the differences of gradients; of a model that draws only it knows them."""
    x, V = point(name), directions(len(point(name)))
    product = one.curvature(one._to_device(x))
    found = np.array([to_host(product(one._to_device(v))) for v in V])
    small = found @ V.T
    assert_close(small, small.T, 1e-9)
    _, slope = differences(lambda x: host_pair(one, x), x, V[0])
    assert_close(found[0], slope, 1e-6)


@every
def test_value_and_gradient(name):
    check_values(problem(name), name)


@of_torch
def test_products_of_the_gauss_newton_matrix(name):
    """Those of other libraries: tests/adapters/test_parity.py."""
    own, one, x = specimen(name), problem(name), point(name)
    if own.outputs is None or draws(name):
        pytest.skip("a plain function has none; one that draws has no reference")
    v = directions(len(x), count=1)[0]  # in general position: one tells all
    expected = own.gauss_newton(torch.from_numpy(x), torch.from_numpy(v))
    assert_close(one.curvature(one._to_device(x))(one._to_device(v)), to_host(expected))


@every
def test_products_of_the_hessian(name):
    if not getattr(specimen(name), "has_hessian", True):
        pytest.skip("torch's own second derivatives are wrong")
    check_hessian(problem(name, "hessian"), name)


@every
def test_the_diagonal_and_the_empirical_fisher_matrix(name):
    """Of the gradients of single samples."""
    if specimen(name).outputs is None or draws(name):
        pytest.skip("a plain function has no samples; those of one that draws differ in a set")
    one = specimen(name).problem(curvature="empirical-fisher", precond="diagonal")
    x = one._to_device(point(name))
    samples = [np.array([i]) for i in range(one.subsets.n)]
    G = np.array([to_host(one.value_and_gradient(x, i)[1]) for i in samples])
    if one.traits.has_diagonal:
        D = one.value_and_gradient(x, diagonal=True)[2]
        assert_close(D, (G**2).mean(0))
    v = directions(len(point(name)), count=1)[0]
    assert_close(one.curvature(x)(one._to_device(v)), G.T @ (G @ v) / len(G))


@every
def test_a_run_goes_down(name):
    """And leaves the user's tensors as they were."""
    own = specimen(name)
    tensors = own.tensors() if of_torchs(name) else []
    before = [tensor.clone() for tensor in tensors]
    res = ksdmin.minimize(problem(name), rng=0, options={"maxiter": 2})
    assert np.isfinite(res.fun)
    assert np.isfinite(to_host(res.x)).all()
    assert res.fun < res.history[0].value
    assert all(map(torch.equal, tensors, before))
    assert not any(tensor.requires_grad for tensor in tensors)
    parameters = own.model.parameters() if hasattr(own, "model") and tensors else []
    assert all(parameter.grad is None for parameter in parameters)


@every
def test_the_way_back(name):
    """`load` writes into the user's own tensors; `unflatten` has the form of the user's own."""
    own, one, x = specimen(name), problem(name), point(name)
    if of_torchs(name):
        one.load(x)
        back = np.concatenate([part.cpu().numpy().reshape(-1) for part in own.written()])
        one.load(one.x0)  # as the other tests want it
    else:
        back, _ = one._library.flatten(one.unflatten(x))
    np.testing.assert_array_equal(back, x)


@pytest.fixture(scope="module")
def _cuda_has_begun():
    """Torch warns of the first product in its own thread, whatever the model is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        A = torch.ones(2, 2, device="cuda", requires_grad=True)
        (A @ A).sum().backward()


@pytest.mark.cuda
@pytest.mark.parametrize("graphs", [None, False])
@pytest.mark.usefixtures("_cuda_has_begun")
@of_torch
def test_the_same_on_cuda(name, graphs):
    """With graphs, where the model has them, and without: as the problem on the CPU."""
    own = ENTRIES[name].make("cuda")
    if own.outputs is None:
        options = [{"graphs": graphs}]
    else:
        options = [{"graphs": graphs}, {"graphs": graphs, "curvature": "hessian"}]
    for chosen in options if getattr(own, "has_hessian", True) else options[:1]:
        one = own.problem(**chosen)
        check_on_cuda(one, name, "curvature" in chosen)
    res = ksdmin.minimize(own.problem(**options[0]), rng=0, options={"maxiter": 5})
    assert res.x.is_cuda
    assert res.fun < res.history[0].value


def check_on_cuda(one, name, hessian):
    here = problem(name, "hessian" if hessian else None)
    x, v = point(name), directions(len(point(name)))[0]
    tolerance = COARSE_ON_CUDA.get(name, TOLERANCE)
    for _ in range(2):  # the second time graphs are replayed
        if not draws(name):
            value, g = host_pair(here, x)
            found = host_pair(one, x)
            assert found[0] == pytest.approx(value, rel=tolerance)
            assert_close(found[1], g, tolerance)
            products = [p.curvature(p._to_device(x))(p._to_device(v)) for p in (one, here)]
            assert_close(products[0], to_host(products[1]), tolerance)
            continue
        check_values(one, name)
        if hessian:
            check_hessian(one, name)
