"""What scripts that time something on a device share: their arguments, and how they report."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from examples.harness.provenance import provenance


def arguments(doc: str) -> argparse.Namespace:
    """The command line of a script with the docstring `doc`."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--commit", help="where it is measured without git")
    parser.add_argument("--out")
    return parser.parse_args()


def origin(args: argparse.Namespace) -> dict[str, Any]:
    """When, on what and with which code a report was made."""
    hardware = torch.cuda.get_device_name() if args.device == "cuda" else None
    return provenance("torch", hardware=hardware, commit=args.commit)


def write(report: dict[str, Any], args: argparse.Namespace) -> None:
    """Print a report, and write it to a file if one is named."""
    text = json.dumps(report, indent=1)
    print(text)
    if args.out:
        Path(args.out).write_text(text + "\n")
