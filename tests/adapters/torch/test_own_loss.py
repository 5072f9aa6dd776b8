"""Models that return their own loss, as those of HuggingFace do when they get labels."""

from collections import OrderedDict
from dataclasses import dataclass, fields

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ksdmin
from tests.adapters.torch.dense import assert_same

N, WORDS, LENGTH, CLASSES = 9, 5, 4, 3


@dataclass
class ModelOutput(OrderedDict):
    """Like those of HuggingFace: fields are entries with indices, but for those that are None."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None

    def __post_init__(self):
        for one in fields(self):
            if getattr(self, one.name) is not None:
                super().__setitem__(one.name, getattr(self, one.name))

    def __getitem__(self, key):
        return dict(self.items())[key] if isinstance(key, str) else tuple(self.values())[key]


class Classifier(nn.Module):
    """A class for each sequence of words."""

    def __init__(self, reduction="mean"):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self.embed = nn.Embedding(WORDS, 3, dtype=torch.float64)
            self.mix = nn.Linear(3, 4, dtype=torch.float64)
            self.head = nn.Linear(4, CLASSES, dtype=torch.float64)
        self.reduction = reduction

    def logits(self, input_ids, attention_mask):
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        h = self.mix(self.embed(input_ids)).tanh() * mask[..., None]
        return self.head(h.sum(1) / mask.sum(1, keepdim=True))

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        logits = self.logits(input_ids, attention_mask)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits, labels, reduction=self.reduction)
        return ModelOutput(loss=loss, logits=logits, hidden_states=(self.embed(input_ids),))


class Tagger(Classifier):
    """A class for each word; words with the label -100 do not count."""

    def logits(self, input_ids, attention_mask):
        return self.head(self.mix(self.embed(input_ids)).tanh())

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        logits = self.logits(input_ids, attention_mask)
        loss = F.cross_entropy(logits.reshape(-1, CLASSES), labels.reshape(-1))
        return ModelOutput(loss=loss, logits=logits)


class OnlyLoss(Classifier):
    """The loss and nothing else, or as `form` makes it."""

    def __init__(self, reduction="mean", form=None):
        super().__init__(reduction)
        self.form = form or (lambda loss, logits: loss)

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        out = super().forward(input_ids, attention_mask, labels)
        return self.form(out.loss, out.logits)


def encoded():
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(WORDS, (N, LENGTH), generator=generator)
    mask = (torch.arange(LENGTH) <= torch.randint(LENGTH, (N, 1), generator=generator)).long()
    labels = torch.randint(CLASSES, (N,), generator=generator)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class Logits(Classifier):
    """The same model for a loss of torch's."""

    def forward(self, input_ids, attention_mask):
        return self.logits(input_ids, attention_mask)


def usual(**options):
    batch = encoded()
    labels = batch.pop("labels")
    return ksdmin.from_torch(Logits(), nn.CrossEntropyLoss(), (batch, labels), **options)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_the_loss_of_the_model(reduction):
    make = lambda kind: ksdmin.from_torch(  # noqa: E731
        Classifier(reduction), data=encoded(), curvature=kind, chunk_size=4
    )
    for kind in (None, "hessian", "empirical-fisher", "gauss-newton"):
        assert_same(make(kind), usual(curvature=kind, chunk_size=4), 1e-9)
    with pytest.raises(ValueError, match="a loss that the model returns does not define"):
        make("fisher")


FORMS = {
    "a scalar": (None, None),
    "a dict": (lambda loss, logits: {"loss": loss}, None),
    "by name": (lambda loss, logits: {"nll": loss, "loss": 3 * loss}, "nll"),
    "by index": (lambda loss, logits: (loss, logits), 0),
    "by a function": (lambda loss, logits: {"a": loss / 2}, lambda out: 2 * out["a"]),
    "a column": (lambda loss, logits: {"loss": loss[:, None] if loss.ndim else loss}, None),
    "detached logits": (lambda loss, logits: {"loss": loss, "logits": logits.detach()}, None),
    "other logits": (lambda loss, logits: {"loss": loss, "logits": 2 * logits}, None),
}


@pytest.mark.parametrize(
    ("name", "reduction"),
    [*((name, "mean") for name in FORMS), ("a scalar", "none"), ("a column", "none")],
)
def test_without_logits_the_default_is_the_hessian(name, reduction):
    form, output = FORMS[name]
    make = lambda **kind: ksdmin.from_torch(  # noqa: E731
        OnlyLoss(reduction, form), data=encoded(), output=output, **kind
    )
    assert_same(make(), usual(curvature="hessian"), 1e-9)
    with pytest.raises(ValueError, match=r"'gauss-newton' needs the outputs .* Use 'hessian'"):
        make(curvature="gauss-newton")
    if reduction == "none":
        kind = {"curvature": "empirical-fisher"}
        assert_same(make(**kind), usual(**kind), 1e-9)
    else:
        with pytest.raises(ValueError, match="'empirical-fisher' needs the outputs"):
            make(curvature="empirical-fisher")


class Penalised(Classifier):
    """A loss that depends on more than the logits."""

    def forward(self, **batch):
        out = super().forward(**batch)
        return ModelOutput(loss=out.loss + self.head.weight.square().sum(), logits=out.logits)


def test_a_loss_of_more_than_the_logits():
    problem = ksdmin.from_torch(Penalised(), data=encoded())
    right = usual(curvature="hessian", l2={"head.weight": 2.0})
    assert_same(problem, right, 1e-9, diagonal=False)
    with pytest.raises(ValueError, match="no 'logits' among its outputs are all"):
        ksdmin.from_torch(Penalised(), data=encoded(), curvature="gauss-newton")


def tagged():
    batch = encoded()
    generator = torch.Generator().manual_seed(1)
    batch["labels"] = torch.randint(CLASSES, (N, LENGTH), generator=generator)
    batch["labels"][batch["attention_mask"] == 0] = -100
    return batch


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("n", [2, N])
def test_a_mean_over_words_is_refused(n, dropout):
    model = Tagger()
    if dropout:
        model.mix = nn.Sequential(model.mix, nn.Dropout(0.3))
    batch = {name: part[-n:] for name, part in tagged().items()}
    assert len(set((batch["labels"] != -100).sum(1).tolist())) > 1
    message = r"not the mean of its samples' losses.*loss=CrossEntropyLoss\(ignore_index=-100\)"
    with pytest.raises(ValueError, match=message):
        ksdmin.from_torch(model, data=batch)
    assert model.training


REFUSED = {
    "no labels": (Classifier(), {}, r"'logits': a tensor of shape \(3, 3\).*\(labels\)"),
    "outputs": (OnlyLoss(form=lambda loss, logits: logits), {"labels": 1},
                r"a loss of shape \(3, 3\) for 3 samples.*loss= is missing"),
    "a sum": (OnlyLoss("none", lambda loss, logits: loss.sum()), {"labels": 1},
              "not the mean of its samples' losses"),
    "a tuple": (OnlyLoss(form=lambda loss, logits: (loss, logits)), {"labels": 1},
                "returned a tuple of 0: a tensor of shape .*output="),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    model, given, message = REFUSED[name]
    batch = encoded()
    if "labels" not in given:
        del batch["labels"]
    with pytest.raises((TypeError, ValueError), match=message):
        ksdmin.from_torch(model, data=batch)


def test_a_forgotten_loss():
    X = torch.ones(4, 3)
    with pytest.raises(TypeError, match=r"loss= is missing: .* inputs of Linear"):
        ksdmin.from_torch(nn.Linear(3, 2), data=(X, X))
    with pytest.raises(TypeError, match=r"expected an nn\.Module, not function"):
        ksdmin.from_torch(lambda x: x, data=(X, X))


def test_weights_of_samples():
    model, weights = Classifier("none"), np.arange(1.0, N + 1)
    with pytest.raises(ValueError, match="in which samples cannot be weighted"):
        ksdmin.from_torch(Classifier("mean"), data=encoded(), sample_weight=weights)
    problem = ksdmin.from_torch(model, data=encoded(), sample_weight=weights)
    plain = ksdmin.from_torch(model, data=encoded())
    singles = [plain.value(plain.x0, [i]) for i in range(N)]
    assert problem.value(problem.x0) == pytest.approx(np.average(singles, weights=weights))
