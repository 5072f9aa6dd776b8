"""Imported first by the scripts of this folder, since Python finds only what is beside a script.

`examples` is that of this checkout. `ksdmin` is the one that PYTHONPATH or the environment names,
so that another version can be measured, and that of this checkout where they name none.
"""

import importlib
import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[2])
sys.path.append(ROOT)
importlib.import_module("ksdmin")  # before this checkout comes first
sys.path.insert(0, ROOT)
