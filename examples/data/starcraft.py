"""Weber and Mateas' (2009) StarCraft games: which strategy does the Zerg player follow?

The paper's games are not public. These are the closest: Terran against Zerg, both players' 99
events (the frame at which each first happened) as known after five minutes, 7 strategies. The
files repeat many games; repeated and nearly empty ones are dropped before splitting.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from examples.data.data_files import Source, locate
from examples.data.splits import Part, Splits

FIVE_MINUTES = 7_200  # frames
FEWEST_EVENTS = 6  # before five minutes: games with less are nearly empty
TEST, HELD_OUT = 100, 80
ADDRESS = (
    "https://raw.githubusercontent.com/syhw/OpeningTech/"
    "5b71cb336ecca3753aabdca84c0e936cfa953252/clustering/"
)
CHECKSUMS = {
    "Terran": "bf30ae4d5afcd48cd6278f92ba8ef1583dd217b8af7cc64b6469b2df628c0a92",
    "Zerg": "f7d02317019f2389df4a583ec50c44388b62ea35188e29d008df52ac8eb3fc11",
}
SOURCES = {
    race: Source(
        path=f"starcraft/scmTvZ_{race}_Mid.arff",
        url=f"{ADDRESS}scmTvZ_{race}_Mid.arff",
        checksum=f"sha256:{checksum}",
    )
    for race, checksum in CHECKSUMS.items()
}


def load(seed: int) -> Splits:
    """Games in random order: the seed chooses the split."""
    times, strategies = games()
    order = np.random.default_rng(seed).permutation(len(times))
    everything = Part(features(times), np.unique(strategies, return_inverse=True)[1])[order]
    train, test = everything[slice(TEST, None)], everything[slice(0, TEST)]
    return Splits(train, test, held_out=train[:0]).holding_out(HELD_OUT)


def games() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.str_]]:
    """When each event first happened within five minutes (inf: it did not), and the strategy."""
    rows = [own + other for own, other in zip(read("Terran"), read("Zerg"), strict=True)]
    unique = np.array(list(dict.fromkeys(tuple(row) for row in rows)))
    of_terran = len(read("Terran")[0]) - 1  # the Terran player's strategy, which is not used
    frames = np.delete(unique, [of_terran, unique.shape[1] - 1], axis=1).astype(float)
    times = np.where((frames >= 0) & (frames <= FIVE_MINUTES), frames, np.inf)
    full = np.isfinite(times).sum(axis=1) >= FEWEST_EVENTS
    return times[full], unique[full, -1]


def read(race: str) -> list[list[str]]:
    """The data lines of an arff file."""
    lines = locate(SOURCES[race]).read_text().splitlines()
    data = lines[lines.index("@data") + 1 :]
    return [line.split(",") for line in data if line]


def features(times: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Whether each event happened, when, and of each pair which one came first (1, 0 or -1)."""
    happened = np.isfinite(times)
    when = np.where(happened, times / FIVE_MINUTES, 0)
    first, second = np.triu_indices(times.shape[1], k=1)
    order = (times[:, first] < times[:, second]).astype(float)
    order -= times[:, first] > times[:, second]
    return np.hstack([happened, when, order]).astype(np.float32)
