"""The experiments by their names."""

from __future__ import annotations

from examples.physics.burgers import burgers, burgers_of_more, burgers_redrawn
from examples.physics.evolution import convection, reaction, wave
from examples.physics.experiment import Experiment
from examples.physics.inverse_diffusion import inverse_diffusion
from examples.physics.many_dimensions import heat, poisson_5d, poisson_10d
from examples.physics.periodic_flows import (
    burgers_periodic,
    korteweg_de_vries,
    kuramoto_sivashinsky,
)
from examples.physics.poisson import poisson
from examples.physics.precision_fit import precision_fit
from examples.physics.sizes import dispersive, helmholtz

RELATIVE, ABSOLUTE = "relative error", "absolute error"
BOTH = ("float64", "float32")
XT, XY, SPACE = ("x", "t"), ("x", "y"), ("x",)

EXPERIMENTS = {
    "convection": Experiment("Convection", RELATIVE, XT, convection, BOTH),
    "reaction": Experiment("Reaction", RELATIVE, XT, reaction, BOTH),
    "wave": Experiment("Wave", RELATIVE, XT, wave, BOTH),
    "poisson-257": Experiment(
        "2d Poisson, 257 parameters", ABSOLUTE, XY, poisson((64,), (16,)), bfgs=True
    ),
    "poisson-9873": Experiment(
        "2d Poisson, 9,873 parameters", ABSOLUTE, XY, poisson((64, 64, 48, 48), (16, 16))
    ),
    "poisson-116097": Experiment(
        "2d Poisson, 116,097 parameters", ABSOLUTE, XY, poisson((256, 256, 128, 128), (32, 32))
    ),
    "burgers": Experiment("Burgers", RELATIVE, XT, burgers, bfgs=True),
    "burgers-100000": Experiment("Burgers, 100,000 points", RELATIVE, XT, burgers_of_more),
    "burgers-redrawn": Experiment("Burgers, points redrawn", RELATIVE, XT, burgers_redrawn),
    "burgers-periodic": Experiment(
        "Burgers, periodic net, points redrawn", RELATIVE, XT, burgers_periodic
    ),
    "kdv": Experiment("Korteweg-de Vries", RELATIVE, XT, korteweg_de_vries),
    "kuramoto-sivashinsky": Experiment(
        "Kuramoto-Sivashinsky, 8 slabs", RELATIVE, XT, kuramoto_sivashinsky
    ),
    "poisson-5d": Experiment("5d Poisson", ABSOLUTE, SPACE, poisson_5d),
    "poisson-10d": Experiment("10d Poisson", ABSOLUTE, SPACE, poisson_10d),
    "heat-4d": Experiment("Heat in 4 + 1 dimensions", ABSOLUTE, ("t", *SPACE), heat),
    "precision-fit": Experiment("Precision fit", "test RMSE", ("x",), precision_fit, bfgs=True),
    "inverse-diffusion": Experiment(
        "Inverse: conductivity", "error of the conductivity", XT, inverse_diffusion, bounded=True
    ),
    **{
        f"helmholtz-{points}": Experiment(
            f"Helmholtz, {points:,} points", RELATIVE, XY, helmholtz(points)
        )
        for points in (4096, 50_000, 200_000)
    },
    **{
        f"dispersive-{parameters}": Experiment(
            f"Third order, {parameters:,} parameters", RELATIVE, XT, dispersive(width)
        )
        for width, parameters in ((64, 12_737), (256, 198_401), (576, 999_361))
    },
}
