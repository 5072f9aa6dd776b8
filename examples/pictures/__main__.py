"""The command line."""

import argparse

from examples.pictures import digits_run, front_page, one_iteration

parser = argparse.ArgumentParser(prog="python -m examples.pictures", description=__doc__)
parser.add_argument("command", nargs="?", choices=["draw", "measure"], default="draw")
if parser.parse_args().command == "measure":
    digits_run.measure()
for path in [*front_page.draw(), *one_iteration.draw()]:
    print(path)
front_page.write_sentences()
