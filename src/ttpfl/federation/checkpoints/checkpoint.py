"""Checkpoints: safetensors files with a JSON card, written in one step and verified when read.

Layout: tensor `vector` (the model's state or the rates), `best` where there is one, `local` (one row per
client in the card's `local`), `kept` (one row per round and excess in the card's `kept`); metadata key
`ttpfl` with the card, which holds a checksum over itself and the tensors.
"""

import json
import logging
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save

from ttpfl._version import __version__
from ttpfl.core.rates_check import Candidate, Kept, keep
from ttpfl.errors import FederationError
from ttpfl.federation.checkpoints.callbacks import Callback, RunInfo
from ttpfl.federation.checkpoints.identity import DIFFERENCE_IS_A_RISK, as_of_now
from ttpfl.federation.common.state import Record, RunState
from ttpfl.util.checksum import is_sound, sealed
from ttpfl.util.files import written_in_one_step
from ttpfl.util.reading import parse_json, regular_size

log = logging.getLogger("ttpfl")

FORMAT = "ttpfl.checkpoint"
VERSION = 1
FOLDER = "checkpoints"


class Checkpoints(Callback):
    """Writes a checkpoint every so many rounds, and keeps the last few.

    Args:
        directory: of the run.
        identity: what makes this run what it is; a checkpoint of another run is refused.
        every: rounds from one to the next.
        keep: how many.
    """

    def __init__(self, directory: Path, identity: dict[str, Any], every: int = 1, keep: int = 3) -> None:
        self._folder, self._identity, self._every, self._keep = directory / FOLDER, identity, every, keep
        self._written = -1

    def on_start(self, info: RunInfo, state: RunState) -> None:
        """What was resumed from is on the disk. What somebody who was killed began to write is of no use."""
        self._written = state.round
        for rest in self._folder.glob(".round-*.part"):
            rest.unlink(missing_ok=True)

    def on_round(self, state: RunState, record: Record) -> None:
        """Write, if it is time."""
        if state.round % self._every == 0 or state.stopped:
            self._write(state)

    def on_interrupt(self, state: RunState) -> None:
        """Nothing of what was finished is lost."""
        self._write(state)

    def on_end(self, state: RunState) -> None:
        """The last round."""
        self._write(state)

    def _write(self, state: RunState) -> None:
        if self._written == state.round:
            return
        path = self._folder / f"round-{state.round:06d}.safetensors"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with written_in_one_step(path) as file:
                file.write(encode(state, self._identity))
        except OSError as error:
            raise FederationError(
                f"{path} could not be written ({error}): earlier checkpoints are intact; make room and resume"
            ) from error
        self._written = state.round
        # Later ones were skipped when this run was resumed. They are no reason to delete what it writes, and
        # are left alone: they may be of a newer version.
        until_now = [other for other in _files(self._folder) if other <= path]
        for old in until_now[: -self._keep]:
            old.unlink(missing_ok=True)


def newest(directory: Path, identity: dict[str, Any]) -> RunState | None:
    """The state in the newest sound checkpoint of a run, or None if there is none.

    Damaged ones are skipped with a warning; one of another run is an error that says what is different.
    """
    for path in reversed(_files(directory / FOLDER)):
        try:
            state, found = read(path)
        except _DamagedError as damage:
            log.warning("%s is damaged (%s): going back to the one before", path, damage)
            continue
        _check_same_run(path, as_of_now(found), identity)
        return state
    return None


def rounds_done(directory: Path) -> int:
    """How many rounds the run in a directory has behind it, by its newest sound checkpoint."""
    for path in reversed(_files(directory / FOLDER)):
        with suppress(_DamagedError):  # whoever resumes the run warns of it
            return read(path)[0].round
    return 0


def _check_same_run(path: Path, found: dict[str, Any], identity: dict[str, Any]) -> None:
    for key, value in found.items():
        if value == identity.get(key):
            continue
        difference = f"{key} was {value!r}, now it is {identity.get(key)!r}"
        if key not in DIFFERENCE_IS_A_RISK:
            raise FederationError(
                f"{path} is of another run: {difference}. Resume with what it was begun with, or begin "
                "elsewhere"
            )
        log.warning("%s: %s. The result may differ in some bits", path, difference)
    if unsaid := sorted(identity.keys() - found.keys()):
        log.warning(
            "%s was written by an earlier version, which did not note %s: make sure that it is as it was",
            path,
            ", ".join(unsaid),
        )


class _DamagedError(Exception):
    pass


def encode(state: RunState, identity: dict[str, Any]) -> bytes:
    """A checkpoint file's content."""
    clients = sorted(state.local)
    tensors = {"vector": state.vector.contiguous()}
    if state.best is not None:
        tensors["best"] = state.best.contiguous()
    if clients:
        tensors["local"] = torch.stack([state.local[client] for client in clients])
    if state.kept:
        tensors["kept"] = torch.stack([one.candidate.values for one in state.kept.values()])
    card = {
        "format": FORMAT,
        "version": VERSION,
        "library": __version__,
        "identity": identity,
        "round": state.round,
        "history": state.history,
        "best_loss": None if math.isinf(state.best_loss) else state.best_loss,  # JSON has no infinity
        "best_round": state.best_round,
        "stopped": state.stopped,
        "local": clients,
        "kept": [[one.candidate.rounds, one.excess] for one in state.kept.values()],
    }
    return save(tensors, metadata={"ttpfl": json.dumps(sealed(card, tensors))})


def read(path: Path) -> tuple[RunState, dict[str, Any]]:
    """The state and the identity in a checkpoint file."""
    try:
        regular_size(path)
        with safe_open(path, framework="pt") as file:
            card = parse_json(file.metadata()["ttpfl"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if not is_sound(card, tensors):
            raise _DamagedError("its checksum is wrong")
        if (card["format"], card["version"]) != (FORMAT, VERSION):
            raise _DamagedError(f"format {card['format']} {card['version']} is not known")
        _check_shapes(card, tensors)
        local = dict(zip(card["local"], tensors.get("local", ()), strict=True))
        state = RunState(
            tensors["vector"],
            card["round"],
            card["history"],
            local,
            tensors.get("best"),
            math.inf if card["best_loss"] is None else card["best_loss"],
            card["best_round"],
            card["stopped"],
            _kept(card, tensors),
        )
        return state, card["identity"]
    except _DamagedError:
        raise
    except Exception as error:  # junk can fail in any way inside the readers
        raise _DamagedError(f"{type(error).__name__}: {error}") from error


def _kept(card: dict[str, Any], tensors: dict[str, torch.Tensor]) -> dict[int, Kept]:
    """Earlier versions had none."""
    kept: dict[int, Kept] = {}
    for (rounds, excess), values in zip(card.get("kept", ()), tensors.get("kept", ()), strict=True):
        if type(rounds) is not int or type(excess) is not float or values.shape != tensors["vector"].shape:
            raise _DamagedError(f"it kept {rounds!r} with {excess!r}")
        keep(kept, excess, Candidate(rounds, values))
    return kept


def _check_shapes(card: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """A checksum that is right says nothing about whoever wrote the file."""
    kinds = {"identity": dict, "history": list, "local": list, "round": int}
    for name, kind in {**kinds, "best_round": int, "stopped": bool}.items():
        if type(card[name]) is not kind:
            raise _DamagedError(f"{name} is {card[name]!r}")
    if card["best_loss"] is not None and type(card["best_loss"]) not in (int, float):
        raise _DamagedError(f"best_loss is {card['best_loss']!r}")
    if len(card["history"]) != card["round"] or not all(isinstance(one, dict) for one in card["history"]):
        raise _DamagedError(f"its history is not that of {card['round']} rounds")
    if tensors["vector"].ndim != 1 or tensors.get("best", tensors["vector"]).shape != tensors["vector"].shape:
        raise _DamagedError("its vectors have no shape that fits")


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("round-*.safetensors"))
