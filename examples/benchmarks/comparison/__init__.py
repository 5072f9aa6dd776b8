"""The parts of the benchmark `scipy_methods.py`.

One thread a process, set before NumPy is loaded: the problems are small, the workers are many, and
times should be those of the methods.
"""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
