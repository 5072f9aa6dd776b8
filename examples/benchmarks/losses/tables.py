"""What the runs show."""

from __future__ import annotations


def line(method: str, data: str, l2: float, seed: int | None, run: dict) -> str:
    """One run in one line."""
    passes = [
        f"{gap} {run['reached'].get(gap, {}).get('passes', 'never')}"
        for gap in ("1e-03", "1e-06", "1e-09")
    ]
    name = f"{method} {data} {l2:.0e}" + ("" if seed is None else f" seed {seed}")
    spent = " ".join(f"{name} {run[name]:g}" for name in "ABC" if name in run)
    return (
        f"{name}: passes {', '.join(passes)}; {run['seconds']:.1f} s, |g| {run['gradient']:.1e}, "
        f"{'converged' if run['success'] else run['message']} {spent}"
    )
