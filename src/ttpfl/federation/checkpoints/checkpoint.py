"""Checkpoints: safetensors files with a JSON card, written atomically and verified when read.

Layout: tensor `vector` (the model's state or the rates), `best` if there is one, `local` (one row per
client in the card's `local`), `kept` (one row per round and excess in the card's `kept`), `memory.*` (what
the server keeps between rounds); metadata key `ttpfl` with the card, which holds a checksum over itself and
the tensors.
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
from ttpfl.federation.checkpoints.identity import MAY_DIFFER, upgraded
from ttpfl.federation.common.state import Record, RunState
from ttpfl.util.checksum import is_sound, sealed
from ttpfl.util.files import written_in_one_step
from ttpfl.util.reading import parse_json, regular_size

log = logging.getLogger("ttpfl")

FORMAT = "ttpfl.checkpoint"
VERSION = 1
FOLDER = "checkpoints"
MEMORY = "memory."  # prefix of tensors


class Checkpoints(Callback):
    """Writes a checkpoint every `every` rounds, and at the end, and keeps the last `keep`."""

    def __init__(self, directory: Path, identity: dict[str, Any], every: int = 1, keep: int = 3) -> None:
        self._folder, self._identity, self._every, self._keep = directory / FOLDER, identity, every, keep
        self._written = -1

    def on_start(self, info: RunInfo, state: RunState) -> None:
        """Remove partial files of a process that was killed."""
        self._written = state.round  # the checkpoint to resume from exists
        for partial in self._folder.glob(".round-*.part"):
            partial.unlink(missing_ok=True)

    def on_round(self, state: RunState, record: Record) -> None:
        """Write a checkpoint if it is due."""
        if state.round % self._every == 0 or state.stopped:
            self.on_end(state)

    def on_end(self, state: RunState) -> None:
        """Write the last finished round, if that has not been done."""
        if self._written == state.round:
            return
        path = self._folder / f"round-{state.round:06d}.safetensors"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with written_in_one_step(path) as file:
                file.write(encode(state, self._identity))
        except OSError as error:
            remedy = "earlier checkpoints are intact; free some space and resume"
            raise FederationError(f"{path} could not be written ({error}): {remedy}") from error
        self._written = state.round
        # Later checkpoints were skipped on resume and may be of a newer version: ignore them, and leave them.
        until_now = [other for other in _files(self._folder) if other <= path]
        for old in until_now[: -self._keep]:
            old.unlink(missing_ok=True)

    on_interrupt = on_end


def newest(directory: Path, identity: dict[str, Any]) -> RunState | None:
    """The state in the newest valid checkpoint of a run, or None if there is none.

    Damaged checkpoints are skipped with a warning. One of another run is an error that names the difference.
    """
    for path in reversed(_files(directory / FOLDER)):
        try:
            state, written_identity = read(path)
        except _DamagedError as damage:
            log.warning("%s is damaged (%s): using the previous checkpoint", path, damage)
            continue
        _check_same_run(path, upgraded(written_identity), identity)
        return state
    return None


def rounds_done(directory: Path) -> int:
    """Number of finished rounds of the run in a directory, according to its newest valid checkpoint."""
    for path in reversed(_files(directory / FOLDER)):
        with suppress(_DamagedError):  # resuming the run will warn
            return read(path)[0].round
    return 0


def _check_same_run(path: Path, written: dict[str, Any], identity: dict[str, Any]) -> None:
    for key, value in written.items():
        if value == identity.get(key):
            continue
        difference = f"{key} was {value!r}, now it is {identity.get(key)!r}"
        if key not in MAY_DIFFER:
            remedy = "Resume with the original value, or use another folder"
            raise FederationError(f"{path} belongs to another run: {difference}. {remedy}")
        log.warning("%s: %s. Results may differ in some bits", path, difference)
    if missing := sorted(identity.keys() - written.keys()):
        message = "%s was written by an earlier version that did not record %s: make sure nothing has changed"
        log.warning(message, path, ", ".join(missing))


class _DamagedError(Exception):
    pass


def encode(state: RunState, identity: dict[str, Any]) -> bytes:
    """The content of a checkpoint file."""
    clients = sorted(state.local)
    tensors = {"vector": state.vector.contiguous()}
    if state.best is not None:
        tensors["best"] = state.best.contiguous()
    if clients:
        tensors["local"] = torch.stack([state.local[client] for client in clients])
    if state.kept:
        tensors["kept"] = torch.stack([kept.candidate.values for kept in state.kept.values()])
    # Copies, since a file cannot hold tensors that share memory.
    tensors |= {f"{MEMORY}{name}": tensor.clone() for name, tensor in state.memory.items()}
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
        "kept": [[kept.candidate.rounds, kept.excess] for kept in state.kept.values()],
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
            raise _DamagedError("its checksum does not match")
        if (card["format"], card["version"]) != (FORMAT, VERSION):
            raise _DamagedError(f"unknown format {card['format']} {card['version']}")
        _check_card(card, tensors)
        local = dict(zip(card["local"], tensors.get("local", ()), strict=True))
        best_loss = math.inf if card["best_loss"] is None else card["best_loss"]
        best = (tensors.get("best"), best_loss, card["best_round"], card["stopped"])
        kept = _read_kept(card, tensors)
        memory = {n.removeprefix(MEMORY): value for n, value in tensors.items() if n.startswith(MEMORY)}
        state = RunState(tensors["vector"], card["round"], card["history"], local, *best, kept, memory)
        return state, card["identity"]
    except _DamagedError:
        raise
    except Exception as error:  # a damaged file can raise any error in the readers
        raise _DamagedError(f"{type(error).__name__}: {error}") from error


def _read_kept(card: dict[str, Any], tensors: dict[str, torch.Tensor]) -> dict[int, Kept]:
    """Earlier rates; files of early versions have none."""
    kept: dict[int, Kept] = {}
    for (rounds, excess), values in zip(card.get("kept", ()), tensors.get("kept", ()), strict=True):
        if type(rounds) is not int or type(excess) is not float or values.shape != tensors["vector"].shape:
            raise _DamagedError(f"kept has {rounds!r} with {excess!r}")
        keep(kept, excess, Candidate(rounds, values))
    return kept


def _check_card(card: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Check types and shapes: a matching checksum does not mean that this library wrote the file."""
    kinds = {"identity": dict, "history": list, "local": list, "round": int}
    for name, kind in {**kinds, "best_round": int, "stopped": bool}.items():
        if type(card[name]) is not kind:
            raise _DamagedError(f"{name} is {card[name]!r}")
    if card["best_loss"] is not None and type(card["best_loss"]) not in (int, float):
        raise _DamagedError(f"best_loss is {card['best_loss']!r}")
    if len(card["history"]) != card["round"] or not all(isinstance(row, dict) for row in card["history"]):
        raise _DamagedError(f"its history does not have {card['round']} rounds")
    if tensors["vector"].ndim != 1 or tensors.get("best", tensors["vector"]).shape != tensors["vector"].shape:
        raise _DamagedError("its vectors do not have matching shapes")


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("round-*.safetensors"))
