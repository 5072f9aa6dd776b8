"""Attention in torch's forms, and by hand."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.zoo.registry import Model, entry, labels, real


class MultiheadSelf(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        z, _ = self.attend(x, x, x)
        return self.head(z).mean(1)


@entry("torch")
def multihead_attention():
    return Model(MultiheadSelf(), nn.MSELoss(), (real(8, 3, 4), real(8, 1)))


class ByEinsum(nn.Module):
    """Heads and a causal mask, by hand."""

    def __init__(self):
        super().__init__()
        self.w_q, self.w_k, self.w_v = (nn.Parameter(torch.randn(2, 3, 2) / 2) for _ in range(3))
        self.w_o = nn.Parameter(torch.randn(2, 2, 3) / 2)
        self.register_buffer("mask", torch.triu(torch.ones(4, 4, dtype=torch.bool), 1))

    def forward(self, x):
        q, k, v = (torch.einsum("btd,hde->bhte", x, w) for w in (self.w_q, self.w_k, self.w_v))
        scores = torch.einsum("bhte,bhse->bhts", q, k) / math.sqrt(q.shape[-1])
        weights = scores.masked_fill(self.mask, -math.inf).softmax(-1)
        return torch.einsum("bhts,bhse,hed->btd", weights, v, self.w_o)


@entry("torch")
def attention_by_einsum():
    return Model(ByEinsum(), nn.MSELoss(), (real(6, 4, 3), real(6, 4, 3)))


def encoder_layer(**kwargs):
    return nn.TransformerEncoderLayer(2, 1, 3, batch_first=True, activation="gelu", **kwargs)


class Encoder(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(2, 1)

    def forward(self, x):
        return self.head(self.layer(x).flatten(1).unflatten(1, (3, 2))[:, 0])


@entry("torch")
def transformer_encoder_layer():
    return Model(Encoder(encoder_layer(dropout=0.0)), nn.MSELoss(), (real(8, 3, 2), real(8, 1)))


@entry("torch")
def transformer_encoder_layer_with_dropout():
    layer = encoder_layer(dropout=0.2)
    return Model(Encoder(layer).train(), nn.MSELoss(), (real(8, 3, 2), real(8, 1)), draws=True)


class LanguageModel(nn.Module):
    """A small GPT: word and position embeddings, a causal block, tied output weights."""

    def __init__(self, words=5, width=4, length=4):
        super().__init__()
        self.word, self.position = nn.Embedding(words, width), nn.Embedding(length, width)
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, words, bias=False)
        self.out.weight = self.word.weight

    def forward(self, words):
        x = self.word(words) + self.position(torch.arange(words.shape[1], device=words.device))
        heads = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 2)).permute(2, 0, 3, 1, 4)
        z = F.scaled_dot_product_attention(*heads, is_causal=True)
        return self.out(x + z.transpose(1, 2).flatten(2)).transpose(1, 2)


@entry("torch")
def small_gpt_with_tied_embeddings():
    words = labels(5, 6, 5)
    return Model(LanguageModel(), nn.CrossEntropyLoss(), (words[:, :-1], words[:, 1:]))
