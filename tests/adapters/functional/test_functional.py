"""What from_autograd and from_jax have in common, against dense matrices and from_torch."""

from importlib import import_module

import numpy as np
import pytest
import torch

import ksdmin
from ksdmin._adapters.functional.losses import as_sample_loss
from ksdmin._problem.functions import Counts
from tests.adapters.functional.dense import (
    LOSSES,
    SIZES,
    TORCH_LOSSES,
    Backend,
    Dense,
    N,
    Net,
    columns,
    jax_settings,
    parameters,
    samples,
)

SOME = np.array([1, 2, 5, 11, 17, 18, 22])
AUTOGRAD = Backend("autograd", pytest.importorskip("autograd").numpy)
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


@pytest.fixture(params=["autograd", "jax"])
def backend(request):
    """Either library, in float64."""
    if request.param == "autograd":
        yield AUTOGRAD
        return
    jax = pytest.importorskip("jax")
    with jax_settings(x64=True):
        yield Backend("jax", jax.numpy)


def make(backend, loss, **kwargs):
    return backend.make(backend.mlp, loss, samples(loss), params=parameters(), **kwargs)


def matrix(backend, problem, idx=slice(None)):
    return columns(problem.curvature(problem.x0, idx), len(problem.x0), backend.array)


# The numbers


@pytest.mark.parametrize("loss", LOSSES)
def test_against_dense_matrices_and_torch(backend, loss):
    problem, dense = make(backend, loss, l2=0.1), Dense(loss, l2=0.1)
    np.testing.assert_allclose(problem.x0, dense.x, **CLOSE)
    found = problem.value_and_gradient(problem.x0, diagonal=True)
    assert isinstance(found[0], float)
    X, y = (torch.as_tensor(part) for part in samples(loss))
    theirs = ksdmin.from_torch(Net(parameters()), TORCH_LOSSES[loss], (X, y), l2=0.1)
    others = theirs.value_and_gradient(theirs.x0, diagonal=True)
    expected = dense.value, dense.gradient, dense.diagonal
    for ours, other, right in zip(found, others, expected, strict=True):
        np.testing.assert_allclose(ours, right, **CLOSE)
        np.testing.assert_allclose(ours, other, **CLOSE)
    G, v = dense.matrix("gauss-newton"), np.random.default_rng(0).standard_normal(len(dense.x))
    np.testing.assert_allclose(matrix(backend, problem), G, **CLOSE)
    product = theirs.curvature(theirs.x0)(torch.as_tensor(v))
    np.testing.assert_allclose(problem.curvature(problem.x0)(backend.array(v)), product, **CLOSE)


@pytest.mark.parametrize("provider", ["hessian", "empirical-fisher"])
def test_providers_on_all_and_on_some_samples(backend, provider):
    loss = "softmax-cross-entropy"
    problem = make(backend, loss, curvature=provider, l2=0.1)
    for idx, there in ((slice(None), slice(None)), (backend.array(SOME), SOME)):
        dense = Dense(loss, there, l2=0.1)
        value, g, D = problem.value_and_gradient(problem.x0, idx, diagonal=True)
        np.testing.assert_allclose(value, dense.value, **CLOSE)
        np.testing.assert_allclose(problem.value(problem.x0, idx), dense.value, **CLOSE)
        np.testing.assert_allclose(g, dense.gradient, **CLOSE)
        np.testing.assert_allclose(problem.value_and_gradient(problem.x0, idx)[1], g, **CLOSE)
        np.testing.assert_allclose(D, dense.diagonal, **CLOSE)
        np.testing.assert_allclose(matrix(backend, problem, idx), dense.matrix(provider), **CLOSE)


def test_a_loss_of_ones_own(backend):
    """Its Hessian in the outputs comes from autodiff."""
    np_ = backend.np

    def loss(z, y):
        return np_.sum(np_.exp(z) - y * z, axis=1)

    data = samples("poisson")
    problem = backend.make(backend.mlp, loss, data, params=parameters(), l2=0.1)
    expected = Dense("poisson", l2=0.1).matrix("gauss-newton")
    np.testing.assert_allclose(matrix(backend, problem), expected, **CLOSE)


def test_a_loss_linear_in_the_outputs(backend):
    problem = backend.make(
        backend.mlp, lambda z, y: (z * y).sum(axis=1), samples("squared-error"), params=parameters()
    )
    assert not np.any(matrix(backend, problem))


def test_one_output_and_a_parameter_that_nothing_depends_on(backend):
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((9, 3)), rng.standard_normal(3)
    y = (X @ w > 0).astype(float)
    params = [np.zeros(3), 0.0, np.ones(2)]
    problem = backend.make(
        lambda p, inputs: inputs @ p[0] + p[1], "binary-cross-entropy", (X, y), params=params
    )
    G = np.column_stack([X, np.ones(9), np.zeros((9, 2))])
    value, g, D = problem.value_and_gradient(problem.x0, diagonal=True)
    np.testing.assert_allclose(value, np.log(2), **CLOSE)
    np.testing.assert_allclose(g, G.T @ (0.5 - y) / 9, **CLOSE)
    np.testing.assert_allclose(D, (G**2).mean(0) / 4, **CLOSE)
    np.testing.assert_allclose(matrix(backend, problem), G.T @ G / 36, **CLOSE)


def test_classes_at_several_positions_and_probabilities(backend):
    """Outputs (n, classes, positions); labels are the probabilities 0 and 1."""
    rng = np.random.default_rng(0)
    X, labels = rng.standard_normal((6, 2)), rng.integers(0, 3, (6, 4))
    params = rng.standard_normal((2, 12))
    one_hot = np.moveaxis(np.eye(3)[labels], -1, 1)

    def model(W, inputs):
        return (inputs @ W).reshape((-1, 3, 4))

    problems = [
        backend.make(model, "softmax-cross-entropy", (X, y), params=params)
        for y in (labels, one_hot)
    ]
    (value, g), (same, too) = (p.value_and_gradient(p.x0) for p in problems)
    z = (X @ params).reshape(6, 3, 4)
    log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
    np.testing.assert_allclose(value, -(one_hot * log_p).sum() / 6, **CLOSE)
    np.testing.assert_allclose(same, value, **CLOSE)
    np.testing.assert_allclose(too, g, **CLOSE)


# Labels drawn from the model


@pytest.mark.parametrize("loss", LOSSES)
def test_the_fisher_matrix_of_a_loss_is_its_hessian(backend, loss):
    """In the outputs, over many draws."""
    library = import_module(f"ksdmin._adapters.functional.{backend.name}")
    library = library.Autograd() if backend.name == "autograd" else library.Jax("highest")
    known = as_sample_loss(loss, library.xp, library.logsumexp)
    z = backend.array(np.tile([0.5, -1.0, 0.2], (20_000, 1)))
    w = library.weights(len(z), len(z), z.dtype)

    def both(z, draws):
        y = known.draw(z, None, draws)
        r = library.vjp(lambda z: known.losses(z, y), z)[1](w)
        H = [known.hessian(z[:1], y[:1], w[:1])(unit[None])[0] for unit in np.eye(3)]
        return r.T @ r / len(z), H

    F, H = library.compile(both)(z, library.draws(0))
    np.testing.assert_allclose(F, np.array(H), atol=0.05)


def test_fisher_is_gauss_newton_on_average(backend):
    loss = "softmax-cross-entropy"
    X, y = samples(loss, n=4000)
    ours = backend.make(backend.mlp, loss, (X, y), params=parameters(), curvature="fisher")
    data = torch.as_tensor(X), torch.as_tensor(y)
    theirs = ksdmin.from_torch(Net(parameters()), TORCH_LOSSES[loss], data)
    v = np.random.default_rng(0).standard_normal(len(ours.x0))
    form = v @ np.asarray(ours.curvature(ours.x0)(backend.array(v)))
    expected = v @ theirs.curvature(theirs.x0)(torch.as_tensor(v)).numpy()
    assert form == pytest.approx(expected, rel=0.15)


def test_a_set_always_draws_the_same_labels(backend):
    loss, idx = "softmax-cross-entropy", backend.array(SOME)
    problem = make(backend, loss, curvature="fisher")
    F = matrix(backend, problem, idx)
    np.testing.assert_array_equal(matrix(backend, problem, idx), F)
    np.testing.assert_allclose(F, F.T, **CLOSE)
    assert np.linalg.eigvalsh(F).min() > -1e-12
    other = make(backend, loss, curvature="fisher", rng=1)
    assert not np.allclose(matrix(backend, other, idx), F)


# Chunks


@pytest.mark.parametrize(
    ("provider", "kwargs"),
    [
        ("gauss-newton", {"chunk_size": 5}),
        ("hessian", {"memory_budget": 1.0}),
    ],
)
def test_chunks_give_the_numbers_of_one_piece(backend, provider, kwargs):
    loss = "softmax-cross-entropy"
    whole, parts = (make(backend, loss, curvature=provider, **kw) for kw in ({}, kwargs))
    pairs = zip(
        whole.value_and_gradient(whole.x0, diagonal=True),
        parts.value_and_gradient(parts.x0, diagonal=True),
        strict=True,
    )
    for one, other in pairs:
        np.testing.assert_allclose(one, other, **CLOSE)
    v = backend.array(np.random.default_rng(0).standard_normal(len(whole.x0)))
    products = [p.curvature(p.x0, idx)(v) for p in (whole, parts) for idx in (slice(None), SOME)]
    np.testing.assert_allclose(products[:2], products[2:], **CLOSE)


def test_a_product_without_memory_counts_its_forward_pass(backend):
    kept = {}
    for budget in (None, 1.0):
        problem = make(backend, "squared-error", memory_budget=budget)
        counts = Counts()
        product = problem.counting(counts).curvature(problem.x0)
        product(problem.x0)
        product(problem.x0)
        kept[budget] = counts.nfev, counts.nhev
    assert kept == {None: (0, 2), 1.0: (2, 2)}


def test_counting(backend):
    problem, counts = make(backend, "squared-error"), Counts()
    twin = problem.counting(counts)
    twin.value(twin.x0)
    twin.value_and_gradient(twin.x0, SOME)
    twin.curvature(twin.x0)(twin.x0)
    assert (counts.nfev, counts.njev, counts.nhev) == (2, 1, 1)


# The penalty and the parameters


def test_l2_of_parts(backend):
    loss = "squared-error"
    plain, weighed = make(backend, loss), make(backend, loss, l2={"layer1": (0.5, 0.0)})
    sizes = [SIZES[0] * SIZES[1], SIZES[1], SIZES[1] * SIZES[2], SIZES[2]]
    l2 = np.repeat([0.0, 0.0, 0.5, 0.0], sizes)
    x = np.asarray(plain.x0)
    v = np.random.default_rng(0).standard_normal(len(x))
    (value, g, D), (other, h, E) = (
        p.value_and_gradient(p.x0, diagonal=True) for p in (plain, weighed)
    )
    assert other == pytest.approx(value + l2 @ x**2 / 2)
    np.testing.assert_allclose(h, g + l2 * x, **CLOSE)
    np.testing.assert_allclose(E, D + l2, **CLOSE)
    Hv, Kv = (p.curvature(p.x0)(backend.array(v)) for p in (plain, weighed))
    np.testing.assert_allclose(Kv, Hv + l2 * v, **CLOSE)


@pytest.mark.parametrize("l2", [{"nothing": 1.0}, [1.0], "much"])
def test_l2_that_is_not_like_the_parameters(backend, l2):
    with pytest.raises(ValueError, match=r"l2: expected a number, or numbers in the order"):
        make(backend, "squared-error", l2=l2)


def test_unflatten_takes_us_back(backend):
    problem, params = make(backend, "squared-error"), parameters()
    for x in (problem.x0, np.asarray(problem.x0)):
        found = problem.unflatten(x)
        assert list(found) == list(params)
        for name, pair in params.items():
            for one, other in zip(found[name], pair, strict=True):
                np.testing.assert_array_equal(one, other)


def test_numpy_callables_for_scipy(backend):
    problem = make(backend, "poisson", l2=0.1)
    x, dense = np.array(problem.x0), Dense("poisson", l2=0.1)
    assert problem.fun(x) == pytest.approx(dense.value)
    for found, expected in [
        (problem.jac(x), dense.gradient),
        (problem.hessp(x, x), dense.matrix("gauss-newton") @ x),
    ]:
        assert type(found) is np.ndarray
        np.testing.assert_allclose(found, expected, **CLOSE)


# A curvature of one's own


def test_a_curvature_of_ones_own(backend):
    problem = make(backend, "squared-error", curvature=lambda x, idx: lambda v: 3 * v)
    np.testing.assert_allclose(problem.curvature(problem.x0)(problem.x0), 3 * problem.x0)
    problem = make(backend, "squared-error", curvature=lambda x, idx: 2 * np.eye(len(x)))
    np.testing.assert_allclose(problem.curvature(problem.x0)(problem.x0), 2 * problem.x0)


# Plain functions


def rosenbrock(x):
    return ((1 - x[:-1]) ** 2).sum() + 100 * ((x[1:] - x[:-1] ** 2) ** 2).sum()


def test_a_plain_function(backend):
    from scipy.optimize import rosen_der, rosen_hess

    x0 = np.array([-1.2, 1.0, 0.7])
    problem = backend.make(rosenbrock, x0=backend.array(x0), l2=0.5)
    value, g = problem.value_and_gradient(problem.x0)
    assert value == pytest.approx(rosenbrock(x0) + x0 @ x0 / 4)
    np.testing.assert_allclose(g, rosen_der(x0) + x0 / 2, **CLOSE)
    np.testing.assert_allclose(
        matrix(backend, problem), rosen_hess(x0) + np.eye(3) / 2, rtol=1e-10, atol=1e-10
    )
    assert not problem.has_diagonal
    with pytest.raises(ValueError, match="this problem has no diagonal"):
        problem.value_and_gradient(problem.x0, diagonal=True)
    with pytest.raises(ValueError, match="a function of the parameters alone"):
        problem.value(problem.x0, np.array([0]))


def test_minimize_a_plain_function(backend):
    x0 = {"b": backend.array([1.0]), "a": backend.array([-1.2])}
    problem = backend.make(
        lambda p: (1 - p["a"][0]) ** 2 + 100 * (p["b"] - p["a"] ** 2) ** 2, x0=x0
    )
    res = ksdmin.minimize(problem)
    assert res.success
    np.testing.assert_allclose(problem.unflatten(res.x)["a"], 1.0, atol=1e-4)


def test_a_plain_function_of_samples(backend):
    X, y = samples("squared-error")
    X, y = backend.array(X), backend.array(y)

    def fun(W, idx):
        return ((X[idx] @ W - y[idx]) ** 2).sum(axis=1).mean()

    sets = ksdmin.Subsets(N, 1.0, 1.0, 1.0, disjoint=False)
    problem = backend.make(fun, x0=np.zeros((4, 3)), subsets=sets)
    part, whole = (problem.value_and_gradient(problem.x0, idx) for idx in (SOME, slice(None)))
    np.testing.assert_allclose(part[0], (np.asarray(y)[SOME] ** 2).sum() / len(SOME), **CLOSE)
    np.testing.assert_allclose(whole[0], (np.asarray(y) ** 2).sum() / N, **CLOSE)
    W = np.linalg.lstsq(np.asarray(X), np.asarray(y), rcond=None)[0]
    res = ksdmin.minimize(problem)
    assert res.success
    np.testing.assert_allclose(problem.unflatten(res.x), W, atol=1e-4)


def test_sets_that_are_names(backend):
    """A function may take any objects for `idx`."""
    files = {"all": 1.0, "some": 2.0}
    problem = backend.make(
        lambda x, name: (files[name] * (x - 3) ** 2).sum(),
        x0=np.zeros(2),
        subsets=ksdmin.Subsets(lambda iteration, rng: ("all", "some", "some"), full="all"),
    )
    value, g = problem.value_and_gradient(problem.x0, "some")
    assert value == pytest.approx(36)
    np.testing.assert_allclose(g, -12.0)
    np.testing.assert_allclose(problem.curvature(problem.x0, "all")(g), 2 * g)
    res = ksdmin.minimize(problem, options={"maxiter": 1, "krylov_dim": 1})
    assert res.fun < problem.value(problem.x0, "all")


# From end to end


def logistic(backend, dtype="float64"):
    """Convex: one minimum, whatever the way there."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3))
    y = (rng.random(300) < 1 / (1 + np.exp(-X @ [1.0, -2.0, 0.5]))).astype(dtype)
    params = (np.zeros(3, dtype), np.zeros(1, dtype))
    return backend.make(
        lambda p, inputs: inputs @ p[0] + p[1],
        "binary-cross-entropy",
        (X.astype(dtype), y),
        params=params,
        l2=1e-3,
    )


def test_minimize(backend):
    problem = logistic(backend)
    res = ksdmin.minimize(problem, rng=0)
    assert res.success
    assert res.preconditioner == "diagonal"
    assert type(res.x) is type(problem.x0)
    assert res.x.dtype == problem.x0.dtype
    theirs = ksdmin.minimize(problem, method="L-BFGS-B", tol=1e-9)
    assert type(theirs.x) is type(problem.x0)
    np.testing.assert_allclose(res.x, theirs.x, atol=1e-3)
    assert res.fun == pytest.approx(theirs.fun, rel=1e-6)


def test_minimize_as_in_the_paper(backend):
    problem, everything = logistic(backend), ksdmin.Subsets(300, 1.0, 1.0, 1.0, disjoint=False)
    res = ksdmin.minimize(problem, subsets=everything, options=ksdmin.PAPER)
    assert res.success
    assert res.nit < 20


def test_the_same_run_as_through_torch(backend):
    loss = "softmax-cross-entropy"
    X, y = (torch.as_tensor(part) for part in samples(loss))
    theirs = ksdmin.from_torch(Net(parameters()), TORCH_LOSSES[loss], (X, y), l2=1e-2)
    options = {"maxiter": 2, "krylov_dim": 3}
    one, other = (
        ksdmin.minimize(problem, rng=0, options=options)
        for problem in (make(backend, loss, l2=1e-2), theirs)
    )
    np.testing.assert_allclose(one.x, other.x, rtol=1e-8)
    assert (one.nfev, one.njev, one.nhev) == (other.nfev, other.njev, other.nhev)
    assert one.passes == other.passes


def test_float32(backend):
    problem, double = logistic(backend, "float32"), logistic(AUTOGRAD)
    assert problem.noise == 1e-7
    x, v = np.full(4, 0.5), np.arange(4.0)
    single = backend.array(x.astype("float32"))
    for found, expected in zip(
        (*problem.value_and_gradient(single, diagonal=True), problem.hessp(x, v)),
        (*double.value_and_gradient(x, diagonal=True), double.hessp(x, v)),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=2e-6)
    _, g, D = problem.value_and_gradient(problem.x0, diagonal=True)
    product = problem.curvature(problem.x0)(problem.x0)
    assert {str(u.dtype) for u in (problem.x0, g, D, product)} == {"float32"}
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 1, "krylov_dim": 2})
    assert str(res.x.dtype) == "float32"
    assert res.fun < problem.value(problem.x0)


def test_arguments_beside_a_problem(backend):
    problem = logistic(backend)
    with pytest.raises(ValueError, match="jac, curvature beside a problem object"):
        ksdmin.minimize(problem, jac=lambda x: x, curvature="hessian")


# Wrong calls


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"loss": "hinge"}, ValueError, r"loss='hinge': expected one of 'squared-error', 'softmax"),
        ({"loss": 3}, TypeError, r"loss=3: expected one of"),
        (
            {"loss": lambda z, y: ((z - y) ** 2).mean()},
            ValueError,
            r"loss returned shape \(\) for \d+ samples: it must return one loss a sample",
        ),
        ({"data": (np.zeros((5, 4)), np.zeros((4, 3)))}, ValueError, r"differ in length: \[4, 5\]"),
        ({"data": (np.zeros((5, 4)), np.zeros(5))}, ValueError, r"outputs have shape \(\d, 3\)"),
        ({"data": np.zeros((5, 4))}, TypeError, r"data: expected \(inputs, targets\), not ndarray"),
        ({"data": ([1.0], [2.0])}, TypeError, r"data: expected arrays with one row a sample"),
        ({"data": (np.zeros((0, 4)), np.zeros((0, 3)))}, ValueError, "there are no samples"),
        (
            {"params": None},
            TypeError,
            r"params= is missing: a model needs params and loss and data",
        ),
        ({"data": None}, TypeError, r"data= is missing"),
        ({"x0": np.zeros(3)}, TypeError, r"x0= goes with a function without loss and data"),
        ({"subsets": 3}, TypeError, r"subsets= goes with a function"),
        ({"curvature": "newton"}, ValueError, r"curvature='newton': expected one of 'hessian'"),
        ({"model": 3}, TypeError, r"model: expected a function, not int"),
        (
            {"loss": lambda z, y: z[:, 0], "curvature": "fisher"},
            ValueError,
            r"'fisher' draws labels from the model's likelihood",
        ),
        (
            {"model": lambda p, X: (X @ p["layer0"][0]).sum(axis=0)},
            ValueError,
            r"the model returned shape \(5,\) for \d+ samples",
        ),
        (
            {"model": lambda p, X: (X - X.mean(axis=0)) @ p["layer0"][0][:, :3]},
            ValueError,
            r"the loss of a sample must depend on no other sample",
        ),
        ({"params": {}}, ValueError, r"'x0' is empty"),
        ({"params": [np.zeros(3, complex)]}, TypeError, r"expected float32 or float64"),
    ],
)
def test_wrong_calls(backend, kwargs, error, message):
    right = {
        "model": backend.mlp,
        "loss": "squared-error",
        "data": samples("squared-error"),
        "params": parameters(),
    }
    with pytest.raises(error, match=message):
        backend.make(**{**right, **kwargs})


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({}, TypeError, r"x0= is missing: a function without loss and data needs x0"),
        ({"params": [1.0]}, TypeError, r"params= goes with a model with loss and data"),
        ({"x0": [1.0], "chunk_size": 3}, TypeError, r"chunk_size= goes with a model"),
        ({"x0": [1.0], "curvature": "gauss-newton"}, ValueError, r"needs a model with outputs"),
    ],
)
def test_wrong_calls_for_a_plain_function(backend, kwargs, error, message):
    with pytest.raises(error, match=message):
        backend.make(lambda x: x @ x, **kwargs)


def test_a_function_that_is_no_scalar(backend):
    problem = backend.make(lambda x: x**2, x0=np.ones(2))
    with pytest.raises(ValueError, match=r"must return a scalar, not an array of shape \(2,\)"):
        problem.value(problem.x0)


def test_a_label_that_is_no_class_is_not_a_number(backend):
    X, y = samples("softmax-cross-entropy")
    data = X, np.where(y == 2, 3, y)
    problem = backend.make(backend.mlp, "softmax-cross-entropy", data, params=parameters())
    assert np.isnan(problem.value(problem.x0))
