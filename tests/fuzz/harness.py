"""Many damaged files of a kind, one after the other in this process, and what came of each."""

import logging
import resource
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.kinds import Kind
from ttpfl.errors import TtpflError

SECONDS = 10  # that reading one file may take
MEMORY = 2**30  # bytes that may be taken beyond what is taken at the start


class HangError(BaseException):
    """Nobody catches it by mistake."""


@dataclass
class Outcome:
    """What came of a kind, and the seeds of what should not have happened."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def fuzz(kind: Kind, numbers: Iterable[int], seed: int, folder: Path) -> Outcome:
    """Damage a file once for each number: a mutation follows from the seed, the kind and its number alone."""
    outcome, path = Outcome(), folder / kind.path
    path.parent.mkdir(parents=True, exist_ok=True)
    kind.make(path)
    whole, original = path.read_bytes(), kind.read(path)
    siblings = {file: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}
    for number in numbers:
        luck = Random(f"{seed} {kind.name} {number}")
        mutated = luck.choice(kind.mutations)(whole, luck)
        for file, content in siblings.items():
            file.write_bytes(mutated if file == path else content)
        verdict, trace = _verdict(kind, path, original)
        outcome.counts[verdict] += 1
        if trace:
            outcome.wrong.append(f"--kind {kind.name!r} --seed {seed} --only {number}: {verdict}\n{trace}")
    return outcome


def _verdict(kind: Kind, path: Path, original: Any) -> tuple[str, str]:
    """A word for what happened, and more about it if it should not have."""
    try:
        with _time_limit():
            found = kind.read(path)
    except (TtpflError, OSError):
        return "refused", ""
    except (Exception, HangError) as error:
        return f"{type(error).__name__}", "".join(traceback.format_exception(error)[-4:])
    if _equal(found, original):
        return "same", ""
    if kind.own:
        return "accepted as written", ""
    if kind.fine(found, original):
        return "damage left out", ""
    return "accepted change", f"{found!r:.300}"


def _equal(found: Any, original: Any) -> bool:
    try:
        return bool(found == original)
    except RecursionError:
        return False


@contextmanager
def _time_limit() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def limit_memory() -> None:
    """From now on, whoever asks for more than `MEMORY` gets a MemoryError, which is a foreign error."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    logging.disable(logging.CRITICAL)
    sys.setrecursionlimit(1000)
