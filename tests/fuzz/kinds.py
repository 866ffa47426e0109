"""What is damaged: how each kind of file is made, how it is read, and what may come of it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.fuzz.mutations import (
    Mutation,
    card_resealed,
    damaged,
    header_changed,
    json_changed,
    json_lines_changed,
    json_resealed,
    toml_changed,
    zip_changed,
)
from tests.helpers.persons import CLASSES, signals, write_table
from ttpfl.cli.foreign import model_in
from ttpfl.core.network import weights_hash
from ttpfl.core.rates import Rates
from ttpfl.data import load as load_data
from ttpfl.data.array_files import read_recording
from ttpfl.data.manifest import Manifest, made_with
from ttpfl.data.manifest import read as read_manifest
from ttpfl.data.storage import read_images
from ttpfl.data.wfdb_files import read_record
from ttpfl.evaluation.rows import head_line, read_rows, row_line
from ttpfl.experiment.complete import complete
from ttpfl.experiment.recipe import read as read_recipe
from ttpfl.experiment.store import DONE, Store
from ttpfl.federation.checkpoints.checkpoint import FOLDER, encode, newest
from ttpfl.federation.common.state import RunState
from ttpfl.models import build
from ttpfl.models.files import save_model
from ttpfl.report import page
from ttpfl.report.tables import markdown
from ttpfl.results.export_files import INDEX, read_export, write_export
from ttpfl.results.files import load
from ttpfl.results.schema import METRICS
from ttpfl.util.checksum import CHECKSUM, sealed

ROOT = Path(__file__).resolve().parents[2]
BUILD = {"name": "shallow_cnn", "num_classes": 3, "image_size": 28}
SIGNATURE = {"classes": ["a", "b", "c"], "image_size": [28, 28], "mean": [0.5] * 3, "std": [0.5] * 3}
INPUTS = {"of": [1, 2]}
RESULT = {"rows": [{"accuracy": 0.607, "client": f"target-{number}"} for number in range(9)]}


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    `read` gives what is meant by the file, as something to compare. Where nothing was changed on purpose
    (`own` is False) it must be one of `fine(original)`: the same, or what remains when damage was noticed.
    `own`: somebody who may write such files wrote this one, so that other content is no mistake.
    """

    name: str
    path: str
    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    mutations: tuple[Mutation, ...]
    own: bool = False
    fine: Callable[[Any, Any], bool] = lambda found, original: found == original


def _model(path: Path) -> None:
    torch.manual_seed(0)
    save_model(path, build(**BUILD).eval(), build=BUILD, signature=SIGNATURE)


def _read_model(path: Path) -> Any:
    model, signature, card = model_in(path, None)
    return weights_hash(model), signature, json.dumps(card, sort_keys=True)


def _rates(path: Path) -> None:
    rates = Rates.zeros(build(**BUILD))
    rates.values.copy_(torch.linspace(-1, 1, len(rates.values)))
    rates.save(path)


def _read_rates(path: Path) -> Any:
    rates = Rates.load(path)
    return rates.values.tolist(), rates.modules, rates.granularity, rates.only, rates.fingerprint


IDENTITY = {"seed": 0, "clients": 3, "torch": "2"}


def _checkpoint(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    state = RunState(torch.arange(6.0), 2, [{"round": 0}, {"round": 1}], {1: torch.ones(2)})
    path.write_bytes(encode(state, IDENTITY))


def _read_checkpoint(path: Path) -> Any:
    state = newest(path.parents[1], IDENTITY)
    if state is None:
        return None
    local = {client: vector.tolist() for client, vector in state.local.items()}
    return state.vector.tolist(), state.round, state.history, local, state.best_loss, state.stopped


def _manifest(path: Path) -> None:
    rows = [(f"source-{n}", "all", "fog", 2, [3, 4, 5], 2, f"{n:064x}") for n in range(5)]
    data = {"name": "digits", "options": {"seed": 0}, "sha256": "0" * 64}
    Manifest({"shift": "hybrid", "seed": 0}, data, rows, rows[:2], made_with()).save(path)


def _stage(path: Path) -> None:
    def work(folder: Path) -> dict[str, Any]:
        (folder / "model.safetensors").write_bytes(bytes(range(200)))
        return RESULT

    store = Store(path.parents[2])
    store.get("comparison", INPUTS, work, files=["model.safetensors"])
    done = store.folder("comparison", INPUTS) / DONE
    if done != path:
        path.parent.mkdir(exist_ok=True)
        for file in done.parent.iterdir():
            (path.parent / file.name).write_bytes(file.read_bytes())


def _read_stage(path: Path) -> Any:
    """Another process, which finds the file under the name that its inputs have."""
    store = Store(path.parents[2])
    place = store.folder("comparison", INPUTS)
    for file in path.parent.iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    computed = []

    def work(folder: Path) -> dict[str, Any]:
        computed.append(folder)
        (folder / "model.safetensors").write_bytes(bytes(range(200)))
        return RESULT

    found = store.get("comparison", INPUTS, work, files=["model.safetensors"])
    return found, (place / "model.safetensors").read_bytes()


def _rows(path: Path) -> None:
    setting = {"model": "0" * 64, "clients": ["target-0"], "seed": 0}
    rows = [row_line(f"none at {n}", {"accuracy": 0.1 * n, "client": f"{n}"}) for n in range(6)]
    path.write_bytes(head_line(setting) + b"".join(rows))


def _read_rows(path: Path) -> Any:
    found = read_rows(path)
    return None if found is None else (found.setting, found.rows)


def _fewer_rows(found: Any, original: Any) -> bool:
    """What is missing is computed again; what is there is as it was."""
    return found is None or (found[0] == original[0] and found[1].items() <= original[1].items())


def _results(path: Path) -> None:
    path.write_bytes((ROOT / "results" / "figure9-toy.json").read_bytes())


def _comparison(path: Path) -> None:
    """Of methods, with learned rates: the first run of the demo, and few of its clients and rounds."""
    found = json.loads((ROOT / "results" / "demo.json").read_text())
    run = found["runs"][0]
    run["training"], run["clients"] = run["training"][:3], run["clients"][:4]
    run["entries"] = [entry for entry in run["entries"] if entry["label"] in ("none", "tent", "atp-online")]
    for entry in run["entries"]:
        entry |= {name: entry[name][:4] for name in METRICS}
        if entry["rates"]:
            entry["rates"] = {name: part[:5] for name, part in entry["rates"].items()}
    found = {**found, "runs": [run]}
    path.write_text(json.dumps(sealed({key: one for key, one in found.items() if key != CHECKSUM})))


def _export(path: Path) -> None:
    history = [{"round": 1, "train_loss": 2.3}]
    modules = [{"name": "conv1.weight", "kind": "weight", "block": "conv1", "rate": 0.5}]
    shared = {"uses": ["seed 0"], "inputs": [INPUTS], "seconds": 1.5, "versions": [{"ttpfl": "0.1.0"}]}
    files: list[Any] = [
        {"stage": "model", "file": "seed-0/model.safetensors", "sha256": "0" * 64, **shared},
        {"stage": "rates", "file": "seed-0/rates-atp-batch.safetensors", "sha256": "1" * 64, **shared},
    ]
    for file, result in zip(
        files, ({"history": history}, {"history": history, "modules": modules}), strict=True
    ):
        file["result"] = result
    recipe: Any = {"recipe": {"name": "demo", "title": "Digits", "preset": "smoke", "set": {}, "command": ""}}
    write_export(path.parent, recipe, files)


def _read_results(path: Path) -> Any:
    return load(path)


def _shown_results(path: Path) -> Any:
    found = load(path)
    return len(page(found).encode("utf-8", "backslashreplace")), markdown(found).encode()


def _recipe(path: Path) -> None:
    path.write_bytes((ROOT / "recipes" / "table3-swap-cnn.toml").read_bytes())


def _read_recipe(path: Path) -> Any:
    return complete(read_recipe(path))


def _npz(path: Path) -> None:
    random = np.random.default_rng(0)
    np.savez_compressed(path, x=random.integers(255, size=(6, 8, 8, 3)).astype(np.uint8), y=np.arange(6))


def _read_npz(path: Path) -> Any:
    x, y = read_images(path)
    return x.tolist(), None if y is None else y.tolist()


def _persons(path: Path) -> None:
    np.savez_compressed(path, **signals(persons=2, samples=6), classes=np.array(CLASSES))


def _read_persons(path: Path) -> Any:
    x, y, client, scale, classes = read_recording(path)
    return x.tolist(), y.tolist(), None if client is None else client.tolist(), scale, classes


def _read_table(path: Path) -> Any:
    clients = load_data("table", path.parent, missing="mean").clients
    return {
        name: (np.asarray(x).tolist(), None if y is None else y.tolist()) for name, (x, y) in clients.items()
    }


def _record(path: Path) -> None:
    path.with_name("7.hea").write_text("7 1 360 8\n7.dat 212 200 11 1024 995 0 0 MLII\n")
    path.with_name("7.dat").write_bytes(bytes(range(12)))
    path.write_bytes(bytes([10, 4, 5, 20, 0, 236, 0, 0, 9, 0, 0, 4, 0, 0]))


def _read_beats(path: Path) -> Any:
    record = read_record(path.with_name("7.hea"))
    return record.places.tolist(), record.symbols, record.signals.tolist()


SAFE, JSON = (damaged, damaged, header_changed), (damaged, json_changed)
KINDS = [
    Kind("model", "model.safetensors", _model, _read_model, SAFE),
    Kind("model, resealed", "model.safetensors", _model, _read_model, (card_resealed,), own=True),
    Kind("rates", "rates.safetensors", _rates, _read_rates, SAFE),
    Kind("rates, resealed", "rates.safetensors", _rates, _read_rates, (card_resealed,), own=True),
    Kind(
        "checkpoint", f"{FOLDER}/round-000002.safetensors", _checkpoint, _read_checkpoint, SAFE,
        fine=lambda found, original: found in (None, original),
    ),
    Kind(
        "checkpoint, resealed", f"{FOLDER}/round-000002.safetensors", _checkpoint, _read_checkpoint,
        (card_resealed,), own=True,
    ),
    Kind("manifest", "manifest.json", _manifest, read_manifest, JSON),
    Kind("manifest, resealed", "manifest.json", _manifest, read_manifest, (json_resealed,), own=True),
    Kind("stage", "comparison/kept/done.json", _stage, _read_stage, JSON),
    Kind("stage's file", "comparison/kept/model.safetensors", _stage, _read_stage, (damaged,)),
    Kind("rows", "rows.jsonl", _rows, _read_rows, (damaged, json_lines_changed), fine=_fewer_rows),
    Kind("results", "results.json", _results, _read_results, JSON),
    Kind("results, resealed", "results.json", _results, _shown_results, (json_resealed,), own=True),
    Kind("comparison, resealed", "results.json", _comparison, _shown_results, (json_resealed,), own=True),
    Kind("export", INDEX, _export, lambda path: read_export(path.parent), JSON),
    Kind(
        "export, resealed", INDEX, _export, lambda path: read_export(path.parent), (json_resealed,), own=True
    ),
    Kind("recipe", "own.toml", _recipe, _read_recipe, (damaged, toml_changed), own=True),
    Kind("npz", "own.npz", _npz, _read_npz, (damaged, zip_changed)),
    Kind("persons", "data.npz", _persons, _read_persons, (damaged, zip_changed)),
    Kind("beats", "7.atr", _record, _read_beats, (damaged,), own=True),  # the format has no checksum
    Kind("table", "table.csv", write_table, _read_table, (damaged,), own=True),
]  # fmt: skip
