"""Write files of every kind that users keep, with what they mean as plain JSON beside them.

    PYTHONPATH=OLD/src python tests/old_version/write.py

OLD is a checkout of the version that writes. The files go to a folder that is named after it, such as `0.1`;
`test_old_version.py` reads every such folder with the present version. Only public names and the command line
are used, so that most versions can run this script.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tiny_network import make
from torch import Tensor, nn

import ttpfl
from ttpfl.federation import LearnSettings, epsilon_of_rates, learn
from ttpfl.models import load_model, save_model

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
CLASSES, SIDE = 3, 8
ARCH = "tiny_network:make"
LINEAR = {"name": "torch.nn:Linear", "in_features": 4, "out_features": 3}
DIGITS = ["--set", "source_clients=3", "--set", "target_clients=2", "--set", "samples=40"]

TRAIN = {
    "train-average": ["--cohort", 2, "--patience", 3],
    "train-local": ["--buffers", "local", "--momentum", 0.9, "--algorithm", "fedprox"],
}
LEARN = {
    "learn-batch": ["--lr", 0.5],
    "learn-online": ["--lr", 0.5, "--mode", "online", "--only", "params", "--cohort", 2, "--patience", 2],
    "learn-private": ["--privacy", "central", "--noise", 5, "--clip", 0.01],
    "learn-default": ["--prior", "--no-check"],
}
HALF, WHOLE = 2, 4
"""Rounds after which a run was interrupted, and all of its rounds."""


def ttpfl_command(*words: object) -> Any:
    """What the command line answers as JSON."""
    return json.loads(ttpfl_program(*words, "--json"))


def ttpfl_program(*words: object) -> bytes:
    """What the command line prints."""
    paths = [str(HERE), str(Path(ttpfl.__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, "-m", "ttpfl", *map(str, words)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        cwd=HERE,
        stdout=subprocess.PIPE,
        check=True,
    )
    return done.stdout


def write_data() -> None:
    """Gray squares, brighter for higher classes. Written once: the files of all versions are about them."""
    if DATA.exists():
        return
    random = np.random.default_rng(0)
    for number, name in enumerate(
        ["source/north", "source/south", "source/west", "target/east", "target/new"]
    ):
        y = random.integers(CLASSES, size=24)
        x = (random.integers(90, size=(24, SIDE, SIDE)) + 40 * y[:, None, None] + 10 * number).astype(
            np.uint8
        )
        (DATA / name).parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(DATA / f"{name}.npz", x=x, **({} if name == "target/new" else {"y": y}))


def stream() -> list[Tensor]:
    """Batches of a target client, for models and rates."""
    x = torch.from_numpy(np.load(DATA / "target" / "east.npz")["x"]).float() / 255
    return list(x[:, None].expand(-1, 3, -1, -1).split(8))


def state_of(model: nn.Module) -> dict[str, Any]:
    return {name: tensor.tolist() for name, tensor in model.state_dict().items()}


def network() -> nn.Module:
    return make(CLASSES, SIDE)


def write_runs(out: Path, again: Path) -> dict[str, Any]:
    """Runs that were interrupted, and what they would have come to."""
    common = ["--batch-size", 8, "--workers", 0, "--keep", 1]
    recorded: dict[str, Any] = {}
    for name, words in TRAIN.items():
        for folder, rounds in ((out, HALF), (again, WHOLE)):
            ttpfl_command(
                "train", "arrays", "--data-dir", DATA, "--model", ARCH, "--out", folder / name,
                "--rounds", rounds, *common, *words,
            )  # fmt: skip
        (out / name / "model.safetensors").unlink()
        recorded[name] = state_of(load_model(again / name / "model.safetensors", network())[0])
    model = out / "models" / "trained.safetensors"
    model.parent.mkdir()
    shutil.copy(again / "train-average" / "model.safetensors", model)
    for name, words in LEARN.items():
        for folder, rounds in ((out, HALF), (again, WHOLE)):
            if words[0] == "--privacy" and folder == again:  # noise follows from the key that a run keeps
                (again / name).mkdir()
                for file in (out / name).iterdir():
                    if file.is_file() and file.name not in ("history.jsonl", "rates.safetensors"):
                        shutil.copy(file, again / name)
            ttpfl_command(
                "learn", model, "--arch", ARCH, "--data-dir", DATA, "--out", folder / name,
                "--rounds", rounds, *common, *words,
            )  # fmt: skip
        (out / name / "rates.safetensors").unlink()
        recorded[name] = ttpfl.Rates.load(again / name / "rates.safetensors").values.tolist()
    return recorded


def write_models(out: Path) -> dict[str, Any]:
    """The trained model is there; one more that says how torch builds it."""
    torch.manual_seed(0)
    linear = nn.Linear(4, 3)
    save_model(out / "models" / "linear.safetensors", linear, build=LINEAR, note="kept as it is")
    trained, card = load_model(out / "models" / "trained.safetensors", network())
    with torch.no_grad():
        logits = trained(stream()[-1]).tolist()
    return {
        "trained": {"state": state_of(trained), "card": card, "logits": logits},
        "linear": {"state": state_of(linear), "note": "kept as it is"},
    }


def private(model: nn.Module, rates: ttpfl.Rates | None = None, seed: int = 0) -> ttpfl.Rates:
    data = [(batch, torch.arange(8) % CLASSES) for batch in stream()]
    clients = {f"site-{number}": data[number] for number in range(3)}
    settings = LearnSettings(
        rounds=3, cohort=2, batch_size=4, workers=0, privacy="local", noise=4.0, clip=0.01, seed=seed
    )
    return learn(model, clients, settings, rates=rates).rates


def guarded(model: nn.Module) -> ttpfl.Rates:
    """With a guard, as source clients learn it, and rates that adapt."""
    clients = [(batch, torch.arange(8) % CLASSES) for batch in stream()]
    rates = ttpfl.learn_rates(model, clients, rounds=2, batch_size=4, guard=True, check=False)
    return rates.with_values(torch.linspace(-0.2, 0.3, len(rates.names)))


def all_rates(model: nn.Module, learned: Path) -> dict[str, ttpfl.Rates]:
    """Of every kind."""
    first = private(model)
    rates = {
        "batch": ttpfl.Rates.load(learned / "learn-batch" / "rates.safetensors"),
        "online-params": ttpfl.Rates.load(learned / "learn-online" / "rates.safetensors"),
        "private": ttpfl.Rates.load(learned / "learn-private" / "rates.safetensors"),
        "private-local": first,
        "private-twice": private(model, first, seed=1),
        "private-averaged": ttpfl.average_rates([first, private(model, seed=2)]),
        "private-rounded": first.derived((first.values * 8).round() / 8),
        "private-changed-by-hand": first.with_values(first.values + 1),
        "zeros": ttpfl.Rates.zeros(model),
        "guard": guarded(model),
    }
    for name, choice in {
        "stats": {"only": "stats"},
        "layer": {"granularity": "layer"},
        "block": {"granularity": "block"},
        "kind": {"granularity": "kind", "only": "params"},
        "log": {"variance": "log"},
        "prior": {"prior": (4.0, 2.0, 1.0)},
        "head": {"prior": (1.0, 1.0, 1.0), "only": "head"},
    }.items():
        empty = ttpfl.Rates.zeros(model, **choice)
        rates[name] = empty.with_values(torch.linspace(-0.5, 0.75, len(empty.names)))
    return rates


def write_rates(out: Path, learned: Path) -> dict[str, Any]:
    model = load_model(out / "models" / "trained.safetensors", network())[0]
    (out / "rates").mkdir()
    recorded = {}
    for name, rates in all_rates(model, learned).items():
        rates.save(out / "rates" / f"{name}.safetensors")
        epsilon = epsilon_of_rates(rates)
        personal = ttpfl.Personalizer(model, rates, mode="online")
        recorded[name] = {
            "values": rates.values.tolist(),
            "members": {rate: list(members) for rate, members in rates.members.items()},
            **{field: getattr(rates, field) for field in ("granularity", "only", "mode", "learned")},
            "epsilon": None if math.isinf(epsilon) else epsilon,
            "table": rates.table(),
            "logits": [personal(batch) for batch in stream()][-1].tolist(),
        }
    return recorded


def write_manifests(out: Path) -> dict[str, Any]:
    """Of the user's own clients, and of clients that are made of digits; the runs have some as well."""
    (out / "manifests").mkdir()
    made = {
        "arrays": ["arrays", "--data-dir", DATA, "--seed", 3],
        "label": ["digits", "--shift", "label", *DIGITS],
        "hybrid": ["digits", "--shift", "hybrid", "--seed", 1, *DIGITS],
        "domain": ["digits", "--shift", "domain", "--held-out", "uci", "--set", "clients_per_domain=1"],
    }
    answers = {
        name: ttpfl_command("data", "make", *words, "--out", out / "manifests" / f"{name}.json")
        for name, words in made.items()
    }
    return {
        name: {key: answer[key] for key in answer if key != "manifest"} for name, answer in answers.items()
    }


def write_comparison(out: Path) -> dict[str, Any]:
    answer = ttpfl_command(
        "compare", out / "models" / "trained.safetensors", "--arch", ARCH, "--data-dir", DATA,
        "--rates", out / "rates" / "batch.safetensors", "--methods", "none,em,bbse,atp-online",
        "--batch-size", 8, "--order", "mixed", "--tune", 2, "--workers", 0, "--out", out / "compare",
    )  # fmt: skip
    return {"methods": answer["methods"]}


def write_experiment(out: Path, again: Path) -> dict[str, Any]:
    """A finished run of a recipe, and what more rounds of training come to."""

    def ran(folder: Path, *words: object) -> dict[str, Any]:
        answer = ttpfl_command(
            "run", "recipe.toml", "--data-dir", DATA, "--workers", 0, "--out", folder, *words
        )
        Path(answer["report"]).unlink()  # made of the other files
        return {key: answer[key] for key in ("accuracy", "methods")}

    return {
        "finished": ran(out / "run"),
        "longer": ran(again / "run", "--set", f"train.rounds={WHOLE}"),
    }


FEDERATION = ["--sites", "north,south", "--host", "fl.example.org", "--port", 9999]
SITE = """name = "north"
data = "data"
layout = "folder"
classes = ["cat", "dog"]
image_size = [24, 32]
validation = 0.25
seed = 3
threads = 2

[policy]
kinds = ["learn"]
models = ["shallow_cnn", "package.module:function"]
largest_model = 5000000
epochs = 3
rounds = 500
smallest_batch = 4
fewest_samples = 20
local_noise = 2.0
epsilon = 8.0
delta = 1e-6
"""


def write_federation(out: Path) -> dict[str, Any]:
    """What operators of a federation keep, but for private keys."""
    from ttpfl.flower.site import Site

    home = out / "federation"
    ttpfl_program(
        "flower", "init", home, "--sites", "north,south", "--host", "fl.example.org", "--port", 9999
    )
    shutil.rmtree(home / "certificates")
    for path in [path for path in home.rglob("*") if path.is_file()]:
        if path.name not in ("federation.toml", "keys.toml", "site.toml", "key.pub"):
            path.unlink()
    for folder in sorted((path for path in home.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
    path = home / "sites" / "north" / "site.toml"
    path.write_text(SITE)
    site = Site.read(path)
    settings = LearnSettings(privacy="local", noise=4.0)
    for _ in range(3):
        site.budget.spend(settings)
    path.with_name("privacy.lock").unlink()
    return {"spent": site.budget.spent, "answers": 3, "noise": 4.0}


def main() -> None:
    torch.set_num_threads(1)
    write_data()
    out = HERE / ".".join(ttpfl.__version__.split(".")[:2])
    if out.exists():
        sys.exit(f"{out} exists: remove it to write it again")
    out.mkdir()
    with tempfile.TemporaryDirectory() as temporary:
        again = Path(temporary)
        recorded = {
            "ttpfl": ttpfl.__version__,
            "runs": write_runs(out, again),
            "models": write_models(out),
            "rates": write_rates(out, again),
            "manifests": write_manifests(out),
            "compare": write_comparison(out),
            "run": write_experiment(out, again),
        }
        if find_spec("flwr") is not None:
            recorded["federation"] = write_federation(out)
    shutil.rmtree(DATA / "cache", ignore_errors=True)
    for lock in out.rglob(".lock"):
        lock.unlink()
    lines = ",\n".join(f"{json.dumps(part)}: {json.dumps(value)}" for part, value in recorded.items())
    (out / "recorded.json").write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
