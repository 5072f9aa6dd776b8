"""Nets of several kinds, their data, and what of their runs the tables show.

The parts of the benchmark `nets_of_today.py`; `small_nets` are for the ablations, on one core.
"""
