"""Errors that others have published, beside which ours are shown.

Their seconds are of slower cards, so that theirs are targets, not measurements at equal time.
"""

from __future__ import annotations

RATHORE = "Rathore et al. 2024, 41,000 iterations"
NNCG = "Rathore et al. 2024, with NNCG at the end, up to 16 h"
DANGEL = "Dangel et al. 2024, 1,000 s"
KIYANI = "Kiyani et al. 2025, 51,000 iterations"
MICHAUD = "Michaud and Tegmark 2022"
GUZMAN = "Guzman-Cordero et al. 2025, 7,000 s, with rates fitted to this error"
GUZMAN_HEAT = "Guzman-Cordero et al. 2025, 3,000 s, with rates fitted to this error"
WANG = "Wang et al. 2025, 100,000 steps"
# As others quote them: the paper itself was not at hand
WEBB_KDV = "Webb et al. 2026, 1,210 s of an H100, as quoted"
WEBB_KS = "Webb et al. 2026, 5,227 s of an H100, as quoted"
KIYANI_WIDER = "Kiyani et al. 2025, 3,021 parameters, 2,878 s, as quoted"
KIYANI_ERRORS = [
    ("L-BFGS", 2.05e-3, KIYANI),
    ("BFGS", 1.50e-5, KIYANI),
    ("SSBFGS", 9.6e-8, KIYANI),
    ("SSBroyden", 7.6e-8, KIYANI),
]

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
    "burgers": KIYANI_ERRORS,
    "burgers-redrawn": KIYANI_ERRORS,
    "burgers-periodic": [("SSBroyden", 1.62e-8, KIYANI_WIDER)],
    "kdv": [("Adam", 7.04e-4, WANG), ("SOAP", 3.40e-4, WANG), ("DSGNAR", 8.24e-11, WEBB_KDV)],
    "kuramoto-sivashinsky": [("SOAP", 3.86e-2, WANG), ("DSGNAR", 5.12e-7, WEBB_KS)],
    "poisson-5d": [
        ("Adam", 3.11e-3, GUZMAN),
        ("HF", 7.66e-5, GUZMAN),
        ("ENGD-W", 6.81e-7, GUZMAN),
        ("SPRING", 2.62e-7, GUZMAN),
    ],
    "poisson-10d": [("ENGD-W", 3.11e-5, GUZMAN), ("SPRING", 1.19e-5, GUZMAN)],
    "heat-4d": [("SPRING", 1.08e-5, GUZMAN_HEAT), ("ENGD-W", 1.03e-5, GUZMAN_HEAT)],
    "precision-fit": [("BFGS", 4.1e-8, MICHAUD)],
}
# The best of any method after 60 s in the runs of Dangel et al., who kept their histories
PUBLISHED_AT_60_S = {"poisson-257": 9.1e-6, "poisson-9873": 2.2e-5, "poisson-116097": 2.1e-4}
