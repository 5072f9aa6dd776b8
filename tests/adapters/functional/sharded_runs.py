"""Run by test_sharding.py in a process with four devices of jax: prints what it finds as JSON."""

import json

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import ksdmin

jax.config.update("jax_enable_x64", True)

N, FEATURES, WIDTH = 400, 8, 16
SUBSETS = {"deterministic": (1.0, 1.0, 1.0, False), "stochastic": (0.6, 0.3, 0.3)}


def model(params, x):
    return jnp.tanh(x @ params["W"] + params["b"]) @ params["V"]


def loss(z, t):
    return ((z - t) ** 2).sum(1)


def samples():
    X = np.random.default_rng(0).standard_normal((N, FEATURES))
    return X, np.sin(X.sum(1, keepdims=True))


def start():
    rng = np.random.default_rng(1)
    W, V = rng.standard_normal((FEATURES, WIDTH)) / 2, rng.standard_normal((WIDTH, 1)) / 3
    return {"W": W, "b": np.zeros(WIDTH), "V": V}


def mesh_of(kind):
    devices = np.array(jax.devices())
    assert len(devices) == 4
    if kind == "auto":
        return Mesh(devices, ("rows",))
    return jax.make_mesh((4,), ("rows",))  # with explicit axes, where jax has such


def placed(kind, mesh):
    """Data and parameters of one device, or over the four."""
    rows, copies = NamedSharding(mesh, P("rows")), NamedSharding(mesh, P())
    if kind == "one device":
        return tuple(map(jnp.asarray, samples())), jax.tree.map(jnp.asarray, start())
    data = tuple(jax.device_put(part, rows) for part in samples())
    if kind == "data":
        return data, jax.tree.map(jnp.asarray, start())
    if kind == "copied parameters":
        return data, jax.device_put(start(), copies)
    columns = NamedSharding(mesh, P(None, "rows"))
    given = {"W": columns, "b": rows, "V": rows}
    return data, {name: jax.device_put(part, given[name]) for name, part in start().items()}


def outcome(kind, mesh, sizes):
    data, params = placed(kind, mesh)
    weights = np.linspace(0.5, 1.5, N) if sizes == "deterministic" else None
    problem = ksdmin.from_jax(model, loss, data, params=params, sample_weight=weights)
    subsets = ksdmin.Subsets(N, *SUBSETS[sizes])
    res = ksdmin.minimize(problem, rng=0, subsets=subsets, options={"maxiter": 8})
    found = problem.unflatten(res.x)
    same = {name: found[name].sharding == part.sharding for name, part in params.items()}
    text = gradient_program(problem)
    return {
        "fun": res.fun,
        "keeps": all(same.values()),
        "devices": len(res.x.sharding.device_set),
        "divided": "f64[10,8]" in text and "all-reduce" in text,
    }


def gradient_program(problem):
    """What XLA has made of the gradient on 37 samples, which are padded to 40."""
    terms = problem._sums
    chunk = next(terms.samples.chunks(np.arange(37), 37))
    return terms._compiled["gradient"].lower(np.asarray(problem.x0), chunk).compile().as_text()


RUNS = {  # (sizes, mesh): kinds
    ("deterministic", "auto"): ("one device", "data", "copied parameters"),
    ("deterministic", "made"): ("parameters",),
    ("stochastic", "auto"): ("one device", "parameters"),
}

if __name__ == "__main__":
    found = [
        {"kind": kind, "mesh": mesh, "sizes": sizes, **outcome(kind, mesh_of(mesh), sizes)}
        for (sizes, mesh), kinds in RUNS.items()
        for kind in kinds
    ]
    print(json.dumps(found))
