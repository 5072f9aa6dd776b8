"""How damping follows the model: the rule that HF and KSD share."""

from __future__ import annotations

# Of the reduction that the quadratic model predicted, and the factors that follow: Martens (2010),
# after Levenberg and Marquardt.
POOR, GOOD = 0.25, 0.75
RAISE, LOWER = 3 / 2, 2 / 3


def adjusted(damping: float, actual: float, predicted: float) -> float:
    """The next damping: less where the model was right, more where it was far off (or NaN)."""
    if not predicted > 0 or not actual >= POOR * predicted:
        return RAISE * damping
    return LOWER * damping if actual > GOOD * predicted else damping
