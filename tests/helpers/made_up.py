"""Results as a run would leave them, but made up: figures near the paper's, with noise."""

import base64
import hashlib
from typing import Any

import numpy as np

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
PAPER = {  # percent, under feature, label and hybrid shift
    "none": (64.4, 69.3, 62.0),
    "bn-adapt": (66.5, 55.0, 50.4),
    "shot": (65.6, 50.0, 46.0),
    "tent": (65.6, 50.1, 45.9),
    "t3a": (64.3, 67.0, 59.7),
    "memo": (65.9, 72.0, 64.2),
    "em": (61.7, 76.3, 67.5),
    "bbse": (56.9, 76.0, 66.6),
    "surgical": (64.5, 73.8, 65.7),
    "atp-batch": (66.9, 76.2, 68.9),
    "atp-online": (67.1, 78.6, 71.5),
    "lame": (62.9, 73.1, 65.0),
    "eata": (65.2, 66.0, 60.9),
    "sar": (65.5, 65.2, 60.1),
    "rotta": (64.9, 68.0, 61.2),
    "em-online": (62.0, 77.4, 68.8),
}
TEN = ["none", "bn-adapt", "tent", "t3a", "memo", "em", "bbse", "surgical", "atp-batch", "atp-online"]
CASES = ("feature", "label", "hybrid")
COSTS = {"none": (1.0, 0), "memo": (48.0, 46_000), "atp-batch": (2.8, 290_000), "atp-online": (2.9, 435_000)}
NASTY = (
    "</script><script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">'&amp;"
)
NASTY += 12 * "endless"  # a word that no phone has room for
CORRUPTIONS = ("speckle_noise", "gaussian_blur", "spatter", "saturate")


def results(
    cases: tuple[str, ...] = CASES,
    methods: list[str] = TEN,
    clients: int = 12,
    seeds: int = 2,
    rounds: int = 60,
) -> dict[str, Any]:
    """The content of a results.json."""
    runs = [_run(case, seed, methods, clients, rounds) for case in cases for seed in range(seeds)]
    paper = {
        label: {case: [PAPER[label][CASES.index(case)], 0.3] for case in cases if case in CASES}
        for label in methods
        if label in TEN
    }
    return {
        "format": 1,
        "recipe": {
            "name": "cnn-cifar10",
            "title": "Test-time personalisation of a shallow CNN on CIFAR-10",
            "question": "Which test-time methods help new clients under feature, label and hybrid shift, "
            "and whom do they harm?",
            "hash": "3f9a1c0de5b7" * 5,
            "preset": "cpu",
            "set": {"train.rounds": rounds},
            "command": f"ttpfl run recipes/cnn-cifar10.toml --preset cpu --set train.rounds={rounds}",
        },
        "made": {
            "ttpfl": "0.1.0",
            "torch": "2.13.0",
            "numpy": "2.4.6",
            "python": "3.11.4",
            "machine": "2 cores, 8 GB",
            "seconds": {"model": 1200.3, "rates": 300.0, "tuning": 4511.0, "comparison": 812.5},
        },
        "paper": {label: figures for label, figures in paper.items() if figures},
        "runs": runs,
    }


def with_accuracies(
    cases: tuple[str, ...] = ("",), seeds: int = 1, **by_method: list[float]
) -> dict[str, Any]:
    """Results in which clients have these accuracies, the same in every case and with every seed."""
    clients = len(next(iter(by_method.values())))
    found = results(cases, list(by_method), clients, seeds) | {"paper": {}}
    for run in found["runs"]:
        for entry in run["entries"]:
            entry["accuracy"] = by_method[entry["label"]]
    return found


def samples(found: dict[str, Any], case: str = "hybrid", side: int = 32) -> dict[str, Any]:
    """The content of a samples.json: stripes and discs in colours that depend on the class."""
    random = np.random.default_rng(3)
    run = next(run for run in found["runs"] if run["case"] == case)
    clients = [
        {"id": client["id"], "images": [_image(random, side) for _ in range(8)]}
        for client in run["clients"][:3]
    ]
    return {"format": 1, "after": "atp-online", "runs": [{"case": case, "seed": 0, "clients": clients}]}


def _run(case: str, seed: int, methods: list[str], clients: int, rounds: int) -> dict[str, Any]:
    random = np.random.default_rng([*case.encode(), seed])
    found = [_client(random, case, number) for number in range(clients)]
    hardness = random.normal(0, 0.06, clients)
    entries = [_entry(random, label, case, hardness, rounds) for label in methods]
    return {
        "case": case,
        "seed": seed,
        "config": {"data.name": "cifar10", "data.shift": case, "data.seed": seed, "train.rounds": rounds,
                   "train.lr": 0.1, "rates.rounds": 2 * rounds, "evaluation.batch_size": 20},
        "population": {
            "digest": _digest(case, seed), "name": "cifar10", "classes": CLASSES,
            "source_clients": 4 * clients, "target_clients": clients,
            "checks": ["no image belongs to two clients", "every image of a client is of its own shift",
                       "target labels are held by the evaluator alone"],
        },
        "clients": found,
        "training": _history(random, rounds, final=0.7, every=10, names=("accuracy",), with_training=True),
        "entries": entries,
    }  # fmt: skip


def _digest(case: str, seed: int) -> str:
    """Cases such as `cohort=15` and `cohort=60` have the same clients."""
    return hashlib.sha256(f"{case.partition('=')[0]} {seed}".encode()).hexdigest()


def _client(random: np.random.Generator, case: str, number: int) -> dict[str, Any]:
    labels = np.full(10, 20)
    if case != "feature":
        labels = np.full(10, 5)
        labels[random.choice(10, 2, replace=False)] = 80
    name = CORRUPTIONS[number % 4]
    corruption = {"name": name, "severity": int(random.integers(1, 6))} if case != "label" else None
    return {"id": f"target-{number}", "domain": None, "corruption": corruption,
            "labels": labels.tolist(), "size": int(labels.sum())}  # fmt: skip


def _entry(
    random: np.random.Generator, label: str, case: str, hardness: np.ndarray, rounds: int
) -> dict[str, Any]:
    clients = len(hardness)
    mean = PAPER[label][CASES.index(case) if case in CASES else 2] / 100
    noise = random.normal(0.005, 0.025, clients) if label != "none" else 0
    accuracy = np.clip(mean + hardness + noise, 0, 1).round(3)
    loss = 2.6 * (1 - accuracy) + 0.1
    time, memory = COSTS.get(label, (1.6, 12_000))
    tuning = {"table": [{"lr": lr, "accuracy": 0.6, "clients": [0.6], "error": ""} for lr in (0.01, 0.1, 1)],
              "at_edge": ["lr"] if label == "tent" else []}  # fmt: skip
    return {
        "label": label,
        "method": label,
        "config": {"lr": 0.1, "steps": 1} if label in ("tent", "surgical", "memo") else {},
        "tuning": tuning if label in ("tent", "surgical") else None,
        "rates": _rates(case, rounds) if label.startswith("atp") else None,
        "accuracy": accuracy.tolist(),
        "loss": loss.tolist(),
        "ece": (0.3 * (1 - accuracy)).tolist(),
        "entropy": (0.8 * loss).tolist(),
        "time": (time * random.normal(1, 0.03, clients)).tolist(),
        "extra_bytes": [memory] * clients,
    }


def _rates(case: str, rounds: int) -> dict[str, Any]:
    """The shallow CNN's 23 modules; the same for ATP-batch and ATP-online of a case."""
    random = np.random.default_rng([*case.encode()])
    sign = {"feature": 1, "label": -1}.get(case, 0.3)
    modules = []
    norms = {"conv1": "bn1", "conv2": "bn2", "conv3": "bn3", "linear4": "bn4", "linear5": None}
    for layer, norm in norms.items():
        kind = "conv" if layer.startswith("conv") else "linear"
        names = [(f"{layer}.weight", f"{kind}.weight")]
        names += [(f"{layer}.bias", "linear.bias")] * (kind == "linear")
        for tensor in ("weight", "bias", "running_mean", "running_var") if norm else ():
            names.append((f"{norm}.{tensor}", f"batchnorm.{tensor}"))
        for name, kind_ in names:
            size = (
                0.12 * sign
                if "running" in name
                else 0.2
                if layer == "linear5" and case != "feature"
                else 0.05
            )
            rate = float(size + random.normal(0, 0.03))
            modules.append({"name": name, "kind": kind_, "block": layer, "rate": rate})
    history = _history(
        random, 2 * rounds, final=0.75, every=20, names=("batch", "online"), with_training=False
    )
    return {"modules": modules, "history": history}


def _history(
    random: np.random.Generator,
    rounds: int,
    final: float,
    every: int,
    names: tuple[str, ...],
    with_training: bool,
) -> list[dict[str, Any]]:
    records = []
    for number in range(rounds):
        done = 1 - np.exp(-4 * (number + 1) / rounds)
        accuracy = float(0.2 + (final - 0.2) * done + random.normal(0, 0.004))
        record: dict[str, Any] = {"round": number}
        if with_training:
            record |= {"train_loss": 2.4 - 2 * accuracy, "train_accuracy": accuracy + 0.08}
        record |= {"validation_loss": 2.5 - 1.9 * accuracy, "validation_accuracy": accuracy}
        if number % every == every - 1:
            record["target"] = {name: accuracy - 0.05 + 0.02 * place for place, name in enumerate(names)}
        records.append(record)
    return records


def _image(random: np.random.Generator, side: int) -> dict[str, Any]:
    label, other = random.choice(10, 2, replace=False)
    y, x = np.mgrid[:side, :side] / side
    hue = 2 * np.pi * label / 10
    disc = ((x - 0.5) ** 2 + (y - 0.5) ** 2 < 0.1)[..., None]
    colour = 127 + 100 * np.cos(hue + np.array([0, 2.1, 4.2]))
    shade = np.stack([y, (x + y) / 2, 1 - x], -1)
    pixels = (np.where(disc, colour, 200 * shade) + random.normal(0, 18, (side, side, 3))).clip(0, 255)
    before, after = random.random(2) < (0.6, 0.85)
    return {
        "size": [side, side],
        "rgb": base64.b64encode(pixels.astype(np.uint8).tobytes()).decode(),
        "label": CLASSES[label],
        "before": {
            "answer": CLASSES[label if before else other],
            "confidence": float(random.uniform(0.3, 0.9)),
        },
        "after": {
            "answer": CLASSES[label if after else other],
            "confidence": float(random.uniform(0.4, 1.0)),
        },
    }


def nasty(value: Any, key: str = "") -> Any:
    """The same with every text made hostile, but for pixels and the names that the report looks for."""
    if isinstance(value, dict):
        return {name: nasty(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [nasty(item) for item in value]
    kept = not isinstance(value, str) or key == "rgb" or value in ("none", *CASES)
    return value if kept else value + NASTY
