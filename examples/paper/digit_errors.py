"""Errors in recognising spoken digits, from the summed posteriors of the frames of an utterance."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from examples.data.splits import Utterances

AT_ONCE = 20_000  # frames


@torch.no_grad()
def digit_errors(net: nn.Module, frames: Tensor, words: Utterances) -> dict[str, float]:
    """Percent of the utterances that are taken for another digit, by noise and in all.

    The digit is the one whose states, as often as they occur in it in the training data, make the
    summed posteriors most likely.
    """
    lengths = torch.from_numpy(np.diff(words.starts)).to(frames.device)
    owner = torch.repeat_interleave(torch.arange(len(lengths), device=frames.device), lengths)
    log_share = torch.from_numpy(words.digit_of_class).to(frames.device)
    summed = torch.zeros(len(lengths), len(log_share), device=frames.device)
    for inputs, rows in zip(frames.split(AT_ONCE), owner.split(AT_ONCE), strict=True):
        summed.index_add_(0, rows, net(inputs).softmax(dim=1))
    wrong = (summed @ log_share).argmax(dim=1).cpu().numpy() != words.digits
    by_noise = {
        name: round(100 * float(wrong[words.noises == kind].mean()), 3)
        for kind, name in enumerate(words.noise_names)
    }
    return {**by_noise, "all": round(100 * float(wrong.mean()), 3)}
