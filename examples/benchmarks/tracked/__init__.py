"""Counts that are tracked from commit to commit: `asv run`, see asv.conf.json."""
