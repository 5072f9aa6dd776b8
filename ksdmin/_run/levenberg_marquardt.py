"""How damping follows the quality of the model: the rule that HF and KSD share."""

from __future__ import annotations

# Shares of the predicted reduction, and the factors that follow from them: Martens (2010), after
# Levenberg and Marquardt.
POOR, GOOD = 0.25, 0.75
RAISE, LOWER = 3 / 2, 2 / 3


def adjusted(damping: float, actual: float, predicted: float) -> float:
    """The next damping: less if the model was right, more if it was far off (or NaN)."""
    if not predicted > 0 or not actual >= POOR * predicted:
        return RAISE * damping
    return LOWER * damping if actual > GOOD * predicted else damping
