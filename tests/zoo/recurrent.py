"""Recurrent networks."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.zoo.registry import Model, entry, labels, real


class LastState(nn.Module):
    def __init__(self, recurrent, size, outputs=1):
        super().__init__()
        self.recurrent, self.head = recurrent, nn.Linear(size, outputs)

    def forward(self, x):
        return self.head(self.recurrent(x)[0][:, -1])


@entry("torch")
def lstm_with_dropout():
    recurrent = nn.LSTM(2, 2, num_layers=2, batch_first=True, dropout=0.4)
    return Model(LastState(recurrent, 2), nn.MSELoss(), (real(8, 3, 2), real(8, 1)), draws=True)


class LstmProjected(nn.Module):
    """Cells in a loop, as for a decoder that feeds itself."""

    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.LSTMCell(1, 3), nn.Linear(3, 1)

    def forward(self, first):
        h = c = first.new_zeros(len(first), 3)
        step, steps = first, []
        for _ in range(3):
            h, c = self.cell(step, (h, c))
            step = self.out(h)
            steps.append(step)
        return torch.cat(steps, 1)


@entry("torch")
def lstm_cells_that_feed_themselves():
    return Model(LstmProjected(), nn.MSELoss(), (real(10, 1), real(10, 3)))


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
