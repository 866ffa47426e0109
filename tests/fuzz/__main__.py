"""`python -m tests.fuzz --count 10000 --seed 1`: damage files and messages, and look what comes of them."""

import argparse
import json
import sys
import tempfile
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import torch

from tests.fuzz import harness, kinds


def main() -> int:
    """The exit code: 0 if nothing happened that should not."""
    known = {kind.name: kind for kind in kinds.KINDS}
    if find_spec("flwr") is not None:
        from tests.fuzz import message_kinds

        known |= {kind.name: kind for kind in message_kinds.KINDS}
    options = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    options.add_argument("--count", type=int, default=200, help="Mutations per kind.")
    options.add_argument("--seed", type=int, default=0, help="Random seed.")
    options.add_argument("--kind", choices=known, action="append", help="Just this kind; may be repeated.")
    options.add_argument("--only", type=int, help="Just the mutation with this number, to look into it.")
    options.add_argument("--json", action="store_true", help="Print the counts as JSON.")
    given = options.parse_args()
    numbers = range(given.count) if given.only is None else [given.only]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in given.kind or known:  # what is imported late is imported now
        with tempfile.TemporaryDirectory() as folder:
            harness.fuzz(known[name], range(1), given.seed, Path(folder))
    harness.limit_memory()
    counts, wrong = {}, []
    for name in given.kind or known:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            outcome = harness.fuzz(known[name], numbers, given.seed, Path(folder))
        counts[name] = dict(outcome.counts)
        wrong += outcome.wrong
        print(f"{name}: {counts[name]} in {time.monotonic() - begin:.1f} s", file=sys.stderr)
    for one in wrong[:20]:
        print(one, file=sys.stderr)
    if given.json:
        print(json.dumps(counts))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
