"""Write the reference file, or check against it: ``python -m tests.reference_runs check``."""

import argparse
import sys
import time
import warnings

from tests.reference_runs import reference
from tests.reference_runs.digest import differences, digest
from tests.reference_runs.fingerprint import fingerprint
from tests.reference_runs.runs import RUNS, execute


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.reference_runs", description=__doc__)
    parser.add_argument("command", choices=["write", "check"])
    parser.add_argument("names", nargs="*", help="of the runs to check; all where left out")
    parser.add_argument("--times", action="store_true", help="print what each run takes")
    given = parser.parse_args()
    if unknown := set(given.names) - set(RUNS):
        parser.error(f"no runs named {', '.join(sorted(unknown))}")
    if given.command == "write":
        if given.names:
            parser.error("write takes no names: the file is of one commit")
        reference.write(made(list(RUNS), given.times))
        return 0
    return check(given.names, given.times)


def made(names, times):
    """The entries of these runs, and on stderr what they took."""
    entries, began = {}, time.perf_counter()
    for name in names:
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # as in the tests
            entries[name] = digest(execute(name))
        if times:
            print(f"{time.perf_counter() - start:6.2f} s {name} {entries[name]}", file=sys.stderr)
    print(f"{len(names)} runs in {time.perf_counter() - began:.1f} s", file=sys.stderr)
    return entries


def check(names, times):
    file = reference.read()
    here = fingerprint()
    for key, value in file["fingerprint"].items():
        if here.get(key) != value:
            print(f"not the same {key}: {value!r} in the file, {here.get(key)!r} here")
    known = file["runs"]
    failed = []
    for name, entry in made(names or list(RUNS), times).items():
        how = differences(known[name], entry) if name in known else "not in the file"
        if how:
            failed.append(name)
            print(f"{name}: {how}")
    if not names and (gone := set(known) - set(RUNS)):
        failed += gone
        print(f"in the file, but no runs: {', '.join(sorted(gone))}")
    print(f"{len(failed)} differ" if failed else "all the same")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
