"""Imported before NumPy is loaded: one thread per process.

For benchmarks of small problems in many workers, where times should be those of the methods.
"""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
