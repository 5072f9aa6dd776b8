"""What `from_torch` makes of a model: its parameters, its randomness, its arithmetic."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import ksdmin
from tests.adapters.torch.dense import SETS, Dense, assert_close, dense, directions, make, point
from tests.adapters.torch.zoo import ZOO, Forward


def build(model, data=None, loss=None, **options):
    """A problem of squared errors, in the dtype of the model."""
    X, y = ZOO["mlp"]().data if data is None else data
    return ksdmin.from_torch(model, loss or nn.MSELoss(), (X, y), **options)


# Parameters


def test_the_start_is_the_models_own():
    case = ZOO["tied"]()
    problem = ksdmin.from_torch(case.model, case.loss, case.data)
    assert torch.equal(problem.x0, nn.utils.parameters_to_vector(case.model.parameters()))
    assert not problem.x0.requires_grad


@pytest.mark.parametrize("convert", [torch.Tensor.numpy, torch.Tensor.clone, torch.Tensor.float])
def test_load(convert):
    case = ZOO["tied"]()
    problem = ksdmin.from_torch(case.model, case.loss, case.data)
    x = point(problem)
    problem.load(convert(x))
    loaded = nn.utils.parameters_to_vector(case.model.parameters())
    assert_close(loaded, x, 1e-6)
    assert case.model.decode.weight is case.model.embed.weight
    with pytest.raises(ValueError, match=r"shape \(3,\), expected \(37,\)"):
        problem.load(np.ones(3))


@pytest.mark.parametrize("name", ZOO)
def test_nothing_else_changes_the_model(name):
    case = ZOO[name]()
    before = {key: value.clone() for key, value in case.model.state_dict().items()}
    modes = [module.training for module in case.model.modules()]
    problem = ksdmin.from_torch(case.model, case.loss, case.data)
    problem.value_and_gradient(problem.x0 + 1, diagonal=True)
    problem.curvature(problem.x0 + 1)(problem.x0)
    for key, value in case.model.state_dict().items():
        assert torch.equal(value, before[key])
    assert [module.training for module in case.model.modules()] == modes
    assert all(parameter.grad is None for parameter in case.model.parameters())


@pytest.mark.parametrize("how", ["requires_grad", "params"])
@pytest.mark.parametrize("kind", ["hessian", "gauss-newton", "empirical-fisher"])
def test_some_parameters(how, kind):
    case, names = ZOO["mlp"](), ["0.bias", "2.weight", "4.bias"]
    if how == "requires_grad":
        for name, parameter in case.model.named_parameters():
            parameter.requires_grad_(name in names)
    options = {"params": names} if how == "params" else {}
    problem = ksdmin.from_torch(case.model, case.loss, case.data, curvature=kind, **options)
    every = list(case.model.named_parameters())
    free = torch.cat([torch.full((p.numel(),), name in names) for name, p in every])
    right = Dense(case, nn.utils.parameters_to_vector([p for _, p in every]).detach())
    assert torch.equal(problem.x0, right.x[free])
    _, g, squares = problem.value_and_gradient(problem.x0, diagonal=True)
    assert_close(g, right.gradient[free])
    assert_close(squares, right.squares[free])
    v = directions(problem.x0, 1)[:, 0]
    H = getattr(right, kind.replace("-", "_"))[free][:, free]
    assert_close(problem.curvature(problem.x0)(v), H @ v)
    problem.load(problem.x0 + 1)
    moved = nn.utils.parameters_to_vector(case.model.parameters())
    assert_close(moved, right.x + free)


def test_a_tied_parameter_has_two_names():
    by_one, by_other, by_both = (
        make("tied", params=names)
        for names in (["embed.weight"], "decode.weight", ["embed.weight", "decode.weight"])
    )
    assert len(by_one.x0) == len(by_other.x0) == len(by_both.x0) == 12
    assert by_one.value(by_one.x0) == by_other.value(by_one.x0)


def half():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    model[1].double()
    return model


@pytest.mark.parametrize(
    ("model", "options", "error", "message"),
    [
        (nn.Flatten(), {}, ValueError, "no trainable parameter"),
        (nn.Linear(3, 2).requires_grad_(False), {}, ValueError, "no trainable parameter"),
        (nn.Linear(3, 2), {"params": []}, ValueError, "no trainable parameter"),
        (nn.Linear(3, 2), {"params": ["bais"]}, ValueError, "no parameter bais"),
        (half(), {}, ValueError, "share one dtype and device, found torch.float32 on cpu, torch.f"),
        (nn.Linear(3, 2).half(), {}, TypeError, "float16; expected float32 or float64"),
        (nn.Linear(3, 2), {"precision": "low"}, ValueError, "precision='low'"),
    ],
)
def test_refused_parameters(model, options, error, message):
    with pytest.raises(error, match=message):
        build(model, **options)


# Models whose loss is no sum over samples


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.linear(x)


class Wandering(nn.Linear):
    rng = np.random.default_rng(0)

    def forward(self, x):
        return super().forward(x) * self.rng.uniform()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)),
         r"BatchNorm1d '1' is in train mode.*model\.eval\(\)"),
        (nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2, track_running_stats=False)).eval(),
         "BatchNorm1d '1' keeps no running statistics.*track_running_stats=True"),
        (Forward(lambda m, x: m.recur(x[None])[0][0], recur=nn.RNN(3, 2, batch_first=True)),
         r"Forward mixes its samples.*batch_first=True"),
        (Forward(lambda m, x: m.linear(x - x.mean(0)), linear=nn.Linear(3, 2)), "Forward mixes"),
        (Wandering(3, 2), "Wandering is not deterministic"),
        (Counting(), "Counting writes into its buffer 'calls'"),
        (nn.Sequential(nn.Embedding(2, 2, max_norm=1.0)), "Embedding '0' rescales"),
        (nn.Sequential(nn.Embedding(2, 2, sparse=True)), "Embedding '0' makes sparse"),
    ],
    ids=lambda value: "" if isinstance(value, nn.Module) else value[:18],
)  # fmt: skip
def test_refused_models(model, message):
    with pytest.raises(ValueError, match=message):
        build(model)


def test_outputs_must_be_a_tensor_of_samples():
    with pytest.raises(TypeError, match=r"GRU returned tuple.*Wrap it"):
        build(nn.GRU(3, 2))
    with pytest.raises(ValueError, match=r"returned shape \(6, 1\) for 3 samples"):
        build(nn.Sequential(nn.Linear(3, 2), nn.Flatten(0), nn.Unflatten(0, (-1, 1))))


def test_batch_norm_in_eval_mode_within_a_model_that_trains():
    case = ZOO["normed"]()
    case.model.train()
    with pytest.raises(ValueError, match="BatchNorm1d '3' is in train mode"):
        ksdmin.from_torch(case.model, case.loss, case.data)
    case.model[3].eval()
    ksdmin.from_torch(case.model, case.loss, case.data)


# Randomness


def recurrent():
    return Forward(
        lambda m, x: m.recur(x[:, :, None])[0][:, -1],
        recur=nn.LSTM(1, 2, 2, batch_first=True, dropout=0.5),
    )


def attentive():
    layer = nn.TransformerEncoderLayer(4, 2, 3, 0.3, activation="gelu", batch_first=True)
    parts = {"embed": nn.Linear(1, 4), "layer": layer, "head": nn.Linear(4, 2)}
    return Forward(lambda m, x: m.head(m.layer(m.embed(x[:, :, None])).mean(1)), **parts)


RANDOM = {"normed": lambda: ZOO["normed"]().model, "dropped": None, "recurrent": recurrent,
          "attentive": attentive}  # fmt: skip


def random_problem(name, **options):
    if name == "dropped":
        return make("dropped", **options)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build(RANDOM[name]().double(), **options)


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("chunk", [3, 100])
@pytest.mark.parametrize("part", SETS)
def test_masks_are_frozen(name, chunk, part):
    """Value, gradient, diagonal and product are those of one function."""
    problem = random_problem(name, curvature="hessian", chunk_size=chunk, l2=0.1)
    x, idx, h = point(problem), SETS[part], 1e-5
    v = directions(x, 1)[:, 0]
    value, g = problem.value_and_gradient(x, idx)
    assert problem.value(x, idx) == pytest.approx(value, rel=1e-14)
    with_diagonal = problem.value_and_gradient(x, idx, diagonal=True)
    assert with_diagonal[0] == pytest.approx(value, rel=1e-14)
    assert_close(with_diagonal[1], g, 1e-13)
    slope = (problem.value(x + h * v, idx) - problem.value(x - h * v, idx)) / (2 * h)
    assert slope == pytest.approx((g @ v).item(), rel=1e-6)
    ahead, behind = (problem.value_and_gradient(x + s * v, idx)[1] for s in (h, -h))
    assert_close(problem.curvature(x, idx)(v), (ahead - behind) / (2 * h), 1e-6)


@pytest.mark.parametrize("name", RANDOM)
def test_every_set_has_masks_of_its_own(name):
    problem, other = random_problem(name), random_problem(name, rng=1)
    x = problem.x0
    few, same, more = torch.arange(3), torch.arange(3), torch.arange(4)
    assert problem.value(x, few) == problem.value(x, same)
    of_one = problem.value(x, more) * 4 - problem.value(x, few) * 3  # sample 3, were masks shared
    assert of_one != pytest.approx(problem.value(x, torch.tensor([3])), rel=1e-3)
    assert problem.value(x) != other.value(x)


@pytest.mark.parametrize("name", ["mlp", "dropped", "recurrent"])
@pytest.mark.parametrize("kind", ["gauss-newton", "fisher"])
def test_the_callers_generator_is_left_alone(name, kind):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        before = torch.get_rng_state()
        problem = make("mlp") if name == "mlp" else random_problem(name, curvature=kind)
        problem.value_and_gradient(problem.x0, diagonal=True)
        problem.curvature(problem.x0)(problem.x0)
        assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("rng", [None, 3, -0, np.random.default_rng(0)])
def test_seeds(rng):
    problem = random_problem("dropped", rng=rng)
    assert problem.value(problem.x0) == problem.value(problem.x0)


# A nonlinearity that belongs to the loss


class Functional(nn.Linear):
    def forward(self, x):
        return torch.sigmoid(super().forward(x))


def ending(*modules):
    return nn.Sequential(nn.Linear(3, 2), *modules)


SQUASHED = {
    "sigmoid": (ending(nn.Sigmoid()), nn.BCELoss(), "BCEWithLogitsLoss"),
    "function": (Functional(3, 2), nn.BCELoss(), "BCEWithLogitsLoss"),
    "reshaped": (ending(nn.Sigmoid(), nn.Unflatten(1, (2, 1)), nn.Flatten()), nn.BCELoss(), "BCEW"),
    "softmax": (ending(nn.LogSoftmax(1)), nn.NLLLoss(), "CrossEntropyLoss"),
}


@pytest.mark.parametrize("name", SQUASHED)
def test_a_squashing_end_is_warned_of_once(name):
    model, loss, better = SQUASHED[name]
    X = torch.ones(8, 3)
    y = torch.ones(8, dtype=torch.int64) if name == "softmax" else torch.full((8, 2), 0.5)
    with pytest.warns(UserWarning, match=f"use {better}") as caught:
        problem = ksdmin.from_torch(model, loss, (X, y))
    assert len(caught) == 1
    assert caught[0].filename == __file__
    problem.curvature(problem.x0)(problem.x0)
    for kind in ("hessian", "empirical-fisher"):  # have nothing to do with the split
        build(model, (X, y), loss, curvature=kind)


def test_no_warning_of_logits():
    logits, y = nn.Sequential(nn.Sigmoid(), nn.Linear(3, 2)), torch.full((8, 2), 0.5)
    build(logits, (torch.ones(8, 3), y), nn.BCEWithLogitsLoss())


# Arithmetic


@pytest.mark.parametrize(
    ("precision", "tolerance", "noise"),
    [("highest", 1e-5, 1e-7), ("high", 1e-5, 1e-5), ("bfloat16", 0.05, 1e-3)],
)
@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer", "dropped"])
def test_single_precision(name, precision, tolerance, noise):
    case, right = ZOO[name](), dense(name, "whole")
    problem = ksdmin.from_torch(
        case.model.float(), case.loss, case.data, precision=precision, curvature="gauss-newton"
    )
    x = right.x.float()
    value, g, squares = problem.value_and_gradient(x, diagonal=True)
    product = problem.curvature(x)(g)
    assert g.dtype == squares.dtype == product.dtype == torch.float32
    assert problem.noise == noise
    if name == "dropped":  # masks are drawn otherwise in another dtype
        return
    assert value == pytest.approx(right.value, rel=tolerance)
    assert_close(g.double(), right.gradient, tolerance)
    assert_close(squares.double(), right.squares, 2 * tolerance)
    assert_close(product.double(), right.gauss_newton @ right.gradient, 2 * tolerance)


def flags():
    def read(of):
        try:
            return of()
        except RuntimeError as error:  # how torch answers where its two ways differ
            return str(error)[:20]

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    return [
        torch.is_autocast_enabled("cpu"),
        torch.is_grad_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
        cudnn.enabled,
        torch.backends.cuda.flash_sdp_enabled(),
        *map(read, (torch.get_float32_matmul_precision, lambda: matmul.allow_tf32,
                    lambda: cudnn.allow_tf32, lambda: matmul.fp32_precision)),
    ]  # fmt: skip


@pytest.fixture(params=["default", "high", "medium", "newer"])
def set_by_user(request):
    """What the user may have told torch before."""
    matmul = torch.backends.cuda.matmul
    before = torch.get_float32_matmul_precision()
    if request.param == "newer":
        if not hasattr(matmul, "fp32_precision"):
            pytest.skip("an older torch")
        matmul.fp32_precision = "tf32"
    elif request.param != "default":
        torch.set_float32_matmul_precision(request.param)
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("precision", ["highest", "high", "bfloat16"])
def test_flags_are_put_back(precision, set_by_user):
    inside, broken = [], False

    def losses(z, y):
        inside.append(torch.get_float32_matmul_precision())
        if broken:
            raise ArithmeticError
        return (z - y).square().mean(1)

    before = flags()
    problem = build(nn.Linear(3, 2), loss=losses, precision=precision)
    problem.value_and_gradient(problem.x0, diagonal=True)
    problem.curvature(problem.x0)(problem.x0)
    if flags() != before:  # where torch's two ways differed, they may agree now
        assert before[6] == "PyTorch is checking "
        assert flags()[8] == before[8]
    assert set(inside) == {"high" if precision == "high" else "highest"}
    before, broken = flags(), True
    with pytest.raises(ArithmeticError):
        problem.value(problem.x0)
    assert flags() == before


def test_within_no_grad():
    right = make("mlp")
    with torch.no_grad():
        problem = make("mlp")
        g = problem.value_and_gradient(problem.x0, diagonal=True)[1]
        product = problem.curvature(problem.x0)(g)
    assert torch.equal(g, right.value_and_gradient(right.x0)[1])
    assert torch.equal(product, right.curvature(right.x0)(g))


def test_a_point_that_requires_a_gradient():
    problem = make("mlp")
    x = problem.x0.clone().requires_grad_()
    g = problem.value_and_gradient(x)[1]
    assert not g.requires_grad
    assert torch.equal(g, problem.value_and_gradient(problem.x0)[1])


def test_attention_gives_one_value_with_and_without_gradients():
    """In eval mode torch has another kernel for inference."""
    case = ZOO["transformer"]()
    problem = ksdmin.from_torch(case.model.eval(), case.loss, case.data)
    assert problem.value(problem.x0) == problem.value_and_gradient(problem.x0)[0]


def test_a_missing_torch():
    script = "import sys; sys.modules['torch'] = None; import ksdmin; ksdmin.from_torch(1, 2, 3)"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    last = process.stderr.strip().splitlines()[-1]
    assert last == "ImportError: ksdmin.from_torch needs torch: pip install 'ksdmin[torch]'"
