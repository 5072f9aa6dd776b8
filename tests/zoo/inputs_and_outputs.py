"""Models with inputs by name, several outputs, or a loss of their own."""

from collections import namedtuple
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from tests.zoo.registry import Model, entry

Batch = namedtuple("Batch", ["points", "scale"])


def rows(n, *shape):
    return torch.randn(n, *shape, dtype=torch.float64)


class Scaled(nn.Module):
    """Two inputs, by position or by name."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, points, scale):
        return self.second(torch.tanh(self.first(points)) * scale)


class OfOneBatch(Scaled):
    """The same, of one argument with names."""

    def forward(self, batch):
        points, scale = batch if isinstance(batch, tuple) else (batch["points"], batch["scale"])
        return super().forward(points, scale)


@entry("torch")
def keyword_inputs():
    data = (rows(9, 3), rows(9, 1)), rows(9, 2)
    return Model(Scaled(), nn.MSELoss(), data, given=lambda own: given(own, dict))


@entry("torch")
def namedtuple_inputs_by_name():
    data = (rows(9, 3), rows(9, 1)), rows(9, 2)
    return Model(Scaled(), nn.MSELoss(), data, given=lambda own: given(own, Batch))


@entry("torch")
def a_dict_as_the_one_input():
    data = ((rows(9, 3), rows(9, 1)),), rows(9, 2)
    return Model(OfOneBatch(), nn.MSELoss(), data, given=lambda own: given(own, dict, own.data[0]))


def given(own, kind, inputs=None):
    points, scale = (inputs or own.data)[0]
    return {"loss": own.loss, "data": (kind(points=points, scale=scale), own.data[1])}


@dataclass
class ClassifierOutput:
    """What a classifier of HuggingFace's returns, in small."""

    logits: torch.Tensor
    loss: torch.Tensor | None = None


class Classifier(nn.Module):
    """A classifier of token sequences, which computes its loss where it gets labels."""

    def __init__(self, labels_wanted=True):
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 4), nn.Linear(4, 3)

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        mask = attention_mask[..., None].to(self.head.weight.dtype)
        pooled = (torch.tanh(self.embedding(input_ids)) * mask).sum(1) / mask.sum(1)
        logits = self.head(pooled)
        loss = None if labels is None else functional.cross_entropy(logits, labels)
        return ClassifierOutput(logits, loss)


def tokens(n=10, length=5):
    ids, mask = torch.randint(7, (n, length)), torch.ones(n, length, dtype=torch.int64)
    mask[::2, 3:] = 0
    return (ids, mask), torch.randint(3, (n,))


def fields(own):
    (ids, mask), labels = own.data
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


@entry("torch")
def huggingface_like_with_a_loss_of_ours():
    return Model(
        Classifier(),
        nn.CrossEntropyLoss(),
        tokens(),
        given=lambda own: {"loss": own.loss, "data": fields(own)},
        read=lambda z: z.logits,
    )


@entry("torch")
def huggingface_like_with_its_own_loss():
    return Model(
        Classifier(),
        nn.CrossEntropyLoss(),
        tokens(),
        given=lambda own: {"data": fields(own)},
        read=lambda z: z.logits,
    )


class TwoHeads(nn.Module):
    """A dict of outputs."""

    def __init__(self):
        super().__init__()
        self.body, self.left, self.right = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, x):
        h = torch.tanh(self.body(x))
        return {"left": self.left(h), "right": self.right(h)}


@entry("torch")
def one_of_a_dict_of_outputs():
    return Model(
        TwoHeads(),
        nn.MSELoss(),
        (rows(8, 3), rows(8, 2)),
        given=lambda own: {"loss": own.loss, "data": own.data, "output": "left"},
        read=lambda z: z["left"],
    )


@entry("torch")
def a_loss_of_both_outputs():
    def both(z, y):
        left, right = (z["left"], z["right"]) if isinstance(z, dict) else (z[:, :2], z[:, 2:])
        return (left - y).square().sum(1) + functional.softplus(right[:, 0])

    return Model(
        TwoHeads(),
        both,
        (rows(8, 3), rows(8, 2)),
        mean=lambda z, y: both(z, y).mean(),
        read=lambda z: torch.cat([z["left"], z["right"]], 1),
    )


@entry("torch")
def the_last_of_a_tuple_of_outputs():
    class Pair(TwoHeads):
        def forward(self, x):
            return tuple(super().forward(x).values())

    return Model(
        Pair(),
        nn.SmoothL1Loss(),
        (rows(8, 3), 3 * rows(8, 1)),
        given=lambda own: {"loss": own.loss, "data": own.data, "output": -1},
        read=lambda z: z[-1],
    )
