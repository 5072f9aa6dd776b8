"""Errors that others have published, beside which ours are shown.

Their seconds are of slower cards, so that theirs are targets, not measurements at equal time.
"""

from __future__ import annotations

RATHORE = "Rathore et al. 2024, 41,000 iterations"
NNCG = "the same and NNCG, up to 16 h"
DANGEL = "Dangel et al. 2024, 1,000 s"
KIYANI = "Kiyani et al. 2025, 51,000 iterations"
MICHAUD = "Michaud and Tegmark 2022"

# problem -> (method, error, source), the most exact last
PUBLISHED: dict[str, list[tuple[str, float, str]]] = {
    "convection": [
        ("Adam", 5.96e-2, RATHORE),
        ("L-BFGS", 8.26e-3, RATHORE),
        ("Adam, then L-BFGS", 4.19e-3, RATHORE),
        ("NNCG", 1.94e-3, NNCG),
    ],
    "reaction": [
        ("L-BFGS", 3.83e-2, RATHORE),
        ("Adam", 2.12e-2, RATHORE),
        ("Adam, then L-BFGS", 1.92e-2, RATHORE),
        ("NNCG", 9.92e-3, NNCG),
    ],
    "wave": [
        ("Adam", 3.49e-1, RATHORE),
        ("L-BFGS", 3.35e-1, RATHORE),
        ("Adam, then L-BFGS", 5.52e-2, RATHORE),
        ("NNCG", 1.27e-2, NNCG),
    ],
    "poisson-257": [
        ("L-BFGS", 1.6e-4, DANGEL),
        ("Adam", 9.4e-5, DANGEL),
        ("HF", 3.2e-7, DANGEL),
        ("KFAC", 2.0e-7, DANGEL),
        ("ENGD", 6.1e-8, DANGEL),
    ],
    "poisson-9873": [
        ("L-BFGS", 3.4e-4, DANGEL),
        ("Adam", 2.1e-4, DANGEL),
        ("ENGD", 9.5e-5, DANGEL),
        ("HF", 1.25e-6, DANGEL),
        ("KFAC", 7.9e-7, DANGEL),
    ],
    "poisson-116097": [
        ("Adam", 8.5e-4, DANGEL),
        ("L-BFGS", 4.0e-4, DANGEL),
        ("KFAC", 1.5e-5, DANGEL),
        ("HF", 2.0e-6, DANGEL),
    ],
    "burgers": [
        ("L-BFGS", 2.05e-3, KIYANI),
        ("BFGS", 1.50e-5, KIYANI),
        ("SSBFGS", 9.6e-8, KIYANI),
        ("SSBroyden", 7.6e-8, KIYANI),
    ],
    "precision-fit": [("BFGS", 4.1e-8, MICHAUD)],
}
# The best of any method after 60 s in the runs of Dangel et al., who kept their histories
PUBLISHED_AT_60_S = {"poisson-257": 9.1e-6, "poisson-9873": 2.2e-5, "poisson-116097": 2.1e-4}
