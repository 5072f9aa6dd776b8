"""Networks with attention, recurrent layers and convolutions."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.adapters.torch.zoo import Forward, attentive, recurrent, u_net
from tests.zoo.registry import Model, entry, labels, real


@entry("torch")
def multihead_attention():
    parts = {"attend": nn.MultiheadAttention(4, 2, batch_first=True), "head": nn.Linear(4, 1)}
    model = Forward(lambda m, x: m.head(m.attend(x, x, x)[0]).mean(1), **parts)
    return Model(model, nn.MSELoss(), (real(8, 3, 4), real(8, 1)))


@entry("torch")
def transformer_encoder_layer_with_dropout():
    model = attentive(2, 1, 3, 1, dropout=0.2, activation="gelu")
    return Model(model, nn.MSELoss(), (real(8, 3, 2), real(8, 1)), draws=True)


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


@entry("torch")
def lstm_with_dropout():
    model = recurrent(nn.LSTM(2, 2, num_layers=2, batch_first=True, dropout=0.4), 2, 1)
    return Model(model, nn.MSELoss(), (real(8, 3, 2), real(8, 1)), draws=True)


def padded_words(n=8, length=4):
    lengths = 1 + labels(length, n)
    words = 1 + labels(5, n, length)
    words[torch.arange(length) >= lengths[:, None]] = 0
    return words, lengths


class Tagger(nn.Module):
    """A label for every word; those of the padding are ignored."""

    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(6, 2), nn.LSTM(2, 2, batch_first=True)
        self.head = nn.Linear(2, 3)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(
            self.embed(words), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        states, _ = pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, total_length=words.shape[1]
        )
        return self.head(states).transpose(1, 2)


@entry("torch")
def packed_tagger_with_ignored_padding():
    words, lengths = padded_words()
    tags = labels(3, 8, 4)
    tags[words == 0] = -100
    return Model(Tagger(), nn.CrossEntropyLoss(), ((words, lengths), tags))


@entry("torch")
def conv1d_with_in_place_relu():
    model = nn.Sequential(
        nn.Conv1d(2, 3, 3), nn.ReLU(inplace=True), nn.Conv1d(3, 2, 2), nn.Flatten(), nn.Linear(4, 1)
    )
    return Model(model, nn.MSELoss(), (real(10, 2, 5), real(10, 1)))


@entry("torch")
def u_net_for_segmentation_with_ignored_pixels():
    """Every pixel has a class."""
    masks = labels(3, 4, 4, 4)
    masks[:, 0] = 255
    return Model(u_net(2, 3), nn.CrossEntropyLoss(ignore_index=255), (real(4, 1, 4, 4), masks))
