"""One model in torch, jax and autograd: the same numbers, whatever is asked for."""

import numpy as np
import pytest

import ksdmin

torch = pytest.importorskip("torch")
autograd_numpy = pytest.importorskip("autograd.numpy")
jax = pytest.importorskip("jax")

LIBRARIES = ("torch", "jax", "autograd")
N, FEATURES, WIDTH = 12, 3, 4
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, FEATURES))
Y = RNG.standard_normal((N, 1))
PARAMS = {
    "W": RNG.standard_normal((FEATURES, WIDTH)),
    "b": RNG.standard_normal(WIDTH),
    "v": RNG.standard_normal((WIDTH, 1)),
}
SIZE = sum(p.size for p in PARAMS.values())
AT, ALONG = 0.5 * RNG.standard_normal((2, SIZE))
OWN = RNG.standard_normal((SIZE, SIZE))
OWN = OWN @ OWN.T
DIAGONAL = 1 + RNG.random(SIZE)
SETS = {"all": slice(None), "some": np.array([1, 4, 5, 9])}

L2 = {"none": 0.0, "one": 0.3, "by name": {"W": 0.7, "v": 0.1}}
CURVATURE = ("gauss-newton", "hessian", "empirical-fisher", "own product", "own matrix")
PRECOND = {"fisher": "diagonal", "none": None, "own": DIAGONAL}
WEIGHTS = {"equal": None, "weighted": np.linspace(0.0, 2.0, N)}
OUTPUTS = RNG.standard_normal((N, WIDTH))
LOSSES = {  # name: torch's, and targets
    "squared-error": (torch.nn.MSELoss, OUTPUTS),
    "softmax-cross-entropy": (torch.nn.CrossEntropyLoss, RNG.integers(0, WIDTH, N)),
    "binary-cross-entropy": (torch.nn.BCEWithLogitsLoss, (OUTPUTS > 0).astype(float)),
    "poisson": (torch.nn.PoissonNLLLoss, RNG.poisson(1.5, OUTPUTS.shape).astype(float)),
}
DOORS = {"torch": ksdmin.from_torch, "jax": ksdmin.from_jax, "autograd": ksdmin.from_autograd}
NAMESPACES = {"torch": torch, "jax": jax.numpy, "autograd": autograd_numpy}


pytestmark = pytest.mark.usefixtures("x64")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, value in PARAMS.items():
            setattr(self, name, torch.nn.Parameter(torch.from_numpy(value.copy())))

    def forward(self, X):
        return torch.tanh(X @ self.W + self.b) @ self.v


def own_curvature(library, kind):
    """The user's own matrix, of the mean loss; or a product with it."""
    H = array(library, OWN)
    return (lambda x, idx: H) if kind == "own matrix" else (lambda x, idx: lambda v: H @ v)


def array(library, u):
    return {"torch": torch.from_numpy, "jax": jax.numpy.asarray, "autograd": np.asarray}[library](u)


def model_problem(library, l2, curvature, precond, weights):
    if curvature.startswith("own"):
        curvature = own_curvature(library, curvature)
    precond = array(library, precond) if isinstance(precond, np.ndarray) else precond
    settings = {"l2": l2, "curvature": curvature, "precond": precond, "sample_weight": weights}
    if weights is not None:
        settings["chunk_size"] = 5  # one is filled up
        if curvature != "gauss-newton":  # whose rows have to fit into memory
            settings["memory_budget"] = 1000.0  # streamed
    if library == "torch":
        data = torch.from_numpy(X), torch.from_numpy(Y)
        return ksdmin.from_torch(Net(), torch.nn.MSELoss(), data, **settings)
    xp = NAMESPACES[library]

    def model(params, X):
        return xp.tanh(X @ params["W"] + params["b"]) @ params["v"]

    def loss(z, y):
        return xp.mean((z - y) ** 2, axis=1)

    return DOORS[library](model, loss, (X, Y), params=PARAMS, **settings)


def function_problem(library, l2, curvature, precond):
    """A function of a dictionary of arrays."""
    curvature = own_curvature(library, curvature) if curvature.startswith("own") else None
    precond = array(library, precond) if isinstance(precond, np.ndarray) else None
    settings = {"l2": l2, "curvature": curvature, "precond": precond}
    xp = NAMESPACES[library]
    inputs = array(library, X)

    def fun(params):
        return (xp.tanh(inputs @ params["W"] + params["b"]) @ params["v"]).sum() ** 2

    x0 = {name: array(library, p) for name, p in PARAMS.items()}
    return DOORS[library](fun, x0=x0, **settings)


def block_problem(library, **settings):
    """Blocks of residuals: two a sample, one a sample, and some of the parameters alone."""
    xp = NAMESPACES[library]

    def outputs(net, X):
        W, b, v = (net[k] if isinstance(net, dict) else getattr(net, k) for k in PARAMS)
        return xp.tanh(X @ W + b) @ v

    def fit(net, batch):
        return (outputs(net, batch["x"]) - batch["y"]) * array(library, np.array([1.0, 0.5]))

    def slope(net, X):
        return outputs(net, X)[:, 0] - outputs(net, -X)[:, 0] - 1.0

    def smallness(net):
        return 0.1 * (net["v"] if isinstance(net, dict) else net.v)

    data = {"x": array(library, X), "y": array(library, Y)}
    blocks = [(fit, data), (slope, array(library, X[:4] + 1), 3.0), (smallness, None, 0.5)]
    if library == "torch":
        return ksdmin.from_torch(Net(), residuals=blocks, **settings)
    return DOORS[library](residuals=blocks, params=PARAMS, **settings)


def numbers(problem, library, idx):
    """Everything that a run asks for, as numpy."""
    x, v = (array(library, u[: len(problem.x0)]) for u in (AT, ALONG))
    value, g, *D = problem.value_and_gradient(x, idx, diagonal=problem.traits.has_diagonal)
    found = {"value": problem.value(x, idx), "with gradient": value, "gradient": g}
    found |= {"diagonal": D[0]} if D else {}
    found["product"] = problem.curvature(x, idx)(v)
    if problem.traits.has_jacobian:
        J = problem.jacobian(x, idx)
        found |= {"R^T R": J.rows.T @ J.rows, "R^T r": J.rows.T @ J.residuals, "l2": J.penalty}
        found["at another point"] = J.at(v)[0]
    if problem.traits.has_matrix:
        found["matrix"] = problem.matrix(x, idx)
    return {name: np.asarray(number) for name, number in found.items()}


def assert_all_alike(found):
    first = found["torch"]
    for library in LIBRARIES[1:]:
        for name in first.keys() & found[library].keys():
            np.testing.assert_allclose(
                found[library][name],
                first[name],
                rtol=1e-9,
                atol=1e-12,
                err_msg=f"{library} {name}",
            )


@pytest.mark.parametrize("curvature", CURVATURE)
@pytest.mark.parametrize("l2", L2)
def test_models(l2, curvature):
    """Every two of the four settings meet, in a sixth of all combinations."""
    turn = list(L2).index(l2) + CURVATURE.index(curvature)
    precond, weights = list(PRECOND)[turn % 3], list(WEIGHTS)[turn % 2]
    settings = L2[l2], curvature, PRECOND[precond], WEIGHTS[weights]
    problems = {library: model_problem(library, *settings) for library in LIBRARIES}
    for idx in SETS.values():
        assert_all_alike({name: numbers(problem, name, idx) for name, problem in problems.items()})


@pytest.mark.parametrize(
    ("loss", "curvature"),
    [
        *((loss, "gauss-newton") for loss in LOSSES),
        ("softmax-cross-entropy", "hessian"),
        ("softmax-cross-entropy", "empirical-fisher"),
    ],
)
def test_losses_by_name_of_linear_models(loss, curvature):
    """With several outputs, of which torch's loss is the sum; they have a matrix."""
    kind, y = LOSSES[loss]
    settings, problems = {"l2": 0.1, "curvature": curvature}, {}
    data = torch.from_numpy(X), torch.from_numpy(y)
    layer = torch.nn.Linear(FEATURES, WIDTH).double()
    problems["torch"] = ksdmin.from_torch(layer, kind(reduction="sum"), data, **settings)
    start = PARAMS["W"].T.copy(), PARAMS["b"]
    for library in LIBRARIES[1:]:
        problems[library] = DOORS[library](
            lambda p, X: X @ p[0].T + p[1], loss, (X, y), params=start, **settings
        )
    for idx in SETS.values():
        found = {name: numbers(problem, name, idx) for name, problem in problems.items()}
        assert all("matrix" in one for one in found.values())
        assert_all_alike(found)


@pytest.mark.parametrize("curvature", ["hessian", "own product", "own matrix"])
@pytest.mark.parametrize("l2", L2)
def test_plain_functions(l2, curvature):
    for precond in (None, DIAGONAL):
        found = {
            library: numbers(
                function_problem(library, L2[l2], curvature, precond), library, slice(None)
            )
            for library in LIBRARIES
        }
        assert_all_alike(found)


BLOCK_SETS = {"all": slice(None), "some": np.array([1, 4, 5, 9, 12, 15, 16])}


@pytest.mark.parametrize(
    ("l2", "curvature", "precond"),
    [
        ("by name", "gauss-newton", "fisher"),
        ("one", "gauss-newton", "own"),
        ("by name", "hessian", "none"),
        ("none", "empirical-fisher", "fisher"),
    ],
)
def test_blocks_of_residuals(l2, curvature, precond):
    D, problems = PRECOND[precond], {}
    for library in LIBRARIES:
        given = array(library, D) if isinstance(D, np.ndarray) else D
        problems[library] = block_problem(library, l2=L2[l2], curvature=curvature, precond=given)
    for idx in BLOCK_SETS.values():
        assert_all_alike({name: numbers(problem, name, idx) for name, problem in problems.items()})


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_weight_enters_drawn_labels_once(library):
    """The Fisher matrix is the Gauss-Newton matrix on average."""
    n, weights = 4000, np.tile([1.0, 9.0], 2000)
    inputs, targets = np.ones((n, 1)), np.zeros((n, 1))
    settings = {"sample_weight": weights}
    products = []
    for curvature in ("fisher", "gauss-newton"):
        settings["curvature"] = curvature
        if library == "torch":
            line = torch.nn.Linear(1, 1, bias=False).double()
            data = torch.from_numpy(inputs), torch.from_numpy(targets)
            problem = ksdmin.from_torch(line, torch.nn.MSELoss(), data, **settings)
        else:
            start = {"slope": np.zeros((1, 1))}
            problem = DOORS[library](
                lambda p, X: X @ p["slope"], "squared-error", (inputs, targets), params=start,
                **settings,
            )  # fmt: skip
        zero, one = array(library, np.zeros(1)), array(library, np.ones(1))
        products.append(np.asarray(problem.curvature(zero)(one)))
    np.testing.assert_allclose(*products, rtol=0.15)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", [*WEIGHTS, "blocks"])
def test_products_are_those_of_the_gradient(library, kind):
    """With the penalty: what all of them have alike could still be wrong."""
    if kind == "blocks":
        problem = block_problem(library, l2=L2["by name"], curvature="hessian", precond=None)
    else:
        problem = model_problem(library, L2["by name"], "hessian", None, WEIGHTS[kind])
    for idx in BLOCK_SETS.values() if kind == "blocks" else (slice(None),):
        assert_differences(problem, library, idx)


def assert_differences(problem, library, idx):
    """A product is a difference of gradients, and a slope one of values."""
    steps = [array(library, AT + h * ALONG) for h in (1e-5, -1e-5)]
    (up, above), (down, below) = (problem.value_and_gradient(x, idx) for x in steps)
    x, v = array(library, AT), array(library, ALONG)
    product, g = problem.curvature(x, idx)(v), problem.value_and_gradient(x, idx)[1]
    difference = (np.asarray(above) - np.asarray(below)) / 2e-5
    np.testing.assert_allclose(np.asarray(product), difference, rtol=1e-6, atol=1e-8)
    assert (up - down) / 2e-5 == pytest.approx(float(g @ v), rel=1e-6)


def test_jax_and_torch_count_the_same_work():
    """A product of a net, as far as both libraries have the same operations."""
    settings = 0.0, "gauss-newton", None, None
    cost = {name: model_problem(name, *settings).traits.product_cost for name in ("torch", "jax")}
    assert 0.5 < cost["jax"] / cost["torch"] < 2


def test_operations_within_loops_and_branches_are_counted():
    from ksdmin._adapters.functional.jax_chunks import operations

    W = np.ones((5, 7))

    def loop(x):
        def step(x, _):
            return jax.jit(lambda x: jax.numpy.tanh(W.T @ (W @ x)))(x), None

        return jax.lax.scan(step, x, length=3)[0]

    products, elements = operations(jax.make_jaxpr(loop)(np.ones(7)).jaxpr)
    assert products == 3 * (2 * 35 + 2 * 35)
    assert 3 * 7 <= elements <= 3 * (7 + 35)  # a transpose may be an operation of its own
