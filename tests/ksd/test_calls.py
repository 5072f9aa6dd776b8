"""An iteration on a cheap function makes few calls of our own: they are most of its seconds."""

import sys
from pathlib import Path

import numpy as np
from scipy.optimize import rosen, rosen_der

import ksdmin

OWN = str(Path(ksdmin.__file__).parent)
MOST = 134  # it was 222 while every step asked what does not change in a run


def test_an_iteration_makes_few_calls():
    calls = 0

    def count(frame, event, arg):
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(OWN)

    x0, before = np.tile([-1.2, 1.0], 50), sys.getprofile()
    sys.setprofile(count)
    try:
        res = ksdmin.minimize(rosen, x0, jac=rosen_der, options={"maxiter": 100})
    finally:
        sys.setprofile(before)
    assert res.nit == 100
    assert calls <= MOST * res.nit
