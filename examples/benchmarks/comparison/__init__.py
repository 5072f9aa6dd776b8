"""The parts of the benchmark `scipy_methods.py`."""
