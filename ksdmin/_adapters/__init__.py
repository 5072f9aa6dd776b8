"""Adapters: models of an autodiff library as problems over one flat vector."""
