"""Overhead of a real federation: seconds and bytes per round, with three sites on 127.0.0.1.

    python benchmarks/flower.py [--rounds 5] [--optimizer sgd]

Each site has ten validation images of digits in a brightness of its own, so that there is something to learn
but the work itself takes almost no time. With `--optimizer trust-region --rounds 25`, the seconds of all
rounds are the time to learned rates; compare them with those of SGD (`--rounds 200`). Every site connects to
the superlink through a proxy that counts the bytes on the wire, including TLS, signatures, polling and
heartbeats. The total is compared with the D + 2Td four-byte numbers that the algorithm itself needs.
"""

import argparse
import json
import socket
import statistics
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ttpfl.core.rates import Rates
from ttpfl.data import federate, load
from ttpfl.federation import LearnSettings, TrainSettings, train
from ttpfl.flower import loopback
from ttpfl.flower.create import create
from ttpfl.flower.folder import Federation
from ttpfl.flower.run_spec import RunSpec
from ttpfl.flower.submit import carry_out
from ttpfl.models import build
from ttpfl.models.files import save_model

SITES = ["north", "south", "west"]
BRIGHTNESS = (0.3, 0.5, 0.7)
BUILD = {"name": "shallow_cnn", "num_classes": 10, "image_size": 28}


class Counter:
    """Forward connections to a port and count the bytes in both directions."""

    def __init__(self, port: int) -> None:
        self.down = self.up = 0
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            for source, sink, name in ((near, far, "up"), (far, near, "down")):
                threading.Thread(target=self._pump, args=(source, sink, name), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, name: str) -> None:
        try:
            while data := source.recv(65536):
                setattr(self, name, getattr(self, name) + len(data))
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                end.close()


def make(home: Path) -> tuple[Federation, dict[str, Counter]]:
    federation, digits, counters = create(home, SITES), load("digits"), {}
    order = np.random.default_rng(0).permutation(len(digits.y))
    for number, name in enumerate(SITES):
        folder, counters[name] = federation.site(name), Counter(federation.port)
        rows = order[50 * number : 50 * (number + 1)]
        x = (np.asarray(digits.x[rows]) * BRIGHTNESS[number]).astype(np.uint8)
        np.savez(folder / "data" / "source" / "own.npz", x=x, y=np.asarray(digits.y[rows]))
        script = (folder / "start.sh").read_text()
        (folder / "start.sh").write_text(script.replace(f":{federation.port}", f":{counters[name].port}"))
    return federation, counters


def measure(home: Path, rounds: int, optimizer: str) -> dict[str, Any]:
    federation, counters = make(home)
    model = trained()
    save_model(home / "model.safetensors", model, build=BUILD)
    out = home / "run"
    settings = LearnSettings(optimizer=optimizer, rounds=rounds, batch_size=10, check=False)
    spec = RunSpec("learn", str(home / "model.safetensors"), str(out), SITES, vars(settings))
    marks: list[int] = []

    def total() -> int:
        return sum(counter.up + counter.down for counter in counters.values())

    def watch() -> None:
        path = out / "history.jsonl"
        done = len(path.read_text().splitlines()) if path.exists() else 0
        marks.extend([total()] * (done - len(marks)))

    try:
        loopback.up(federation, 300)
        before = time.monotonic(), total()
        time.sleep(20)
        idle = (total() - before[1]) / (time.monotonic() - before[0]) / len(SITES)
        begin = total()
        carry_out(federation, spec, watch)
        watch()
    finally:
        loopback.down(federation)
    seconds = [json.loads(line)["seconds"] for line in (out / "timing.jsonl").read_text().splitlines()]
    sizes = np.diff([begin, *marks]) / len(SITES)
    return {
        "numbers in the model (D)": sum(t.numel() for t in model.state_dict().values()),
        "rates (d)": len(Rates.zeros(model).values),
        "rounds": len(seconds),
        "seconds of all rounds": sum(seconds),
        "seconds of the first round (with the model)": seconds[0],
        "seconds of a later round (median)": statistics.median(seconds[1:]),
        "seconds of work in it (median over sites)": statistics.median(work_times(federation)),
        "bytes per site and second, idle": idle,
        "bytes per site, first round": float(sizes[0]),
        "bytes per site, later round (median)": float(np.median(sizes[1:])),
        "bytes per site, all rounds": float(sizes.sum()),
    }


def trained() -> nn.Module:
    """A network that has seen digits in full brightness only."""
    torch.manual_seed(0)
    source = federate(
        "digits", shift="label", source_clients=6, target_clients=1, samples=100
    ).population.source
    settings = TrainSettings(rounds=10, validate_every=0, check=False)
    return train(build(**BUILD), source, settings).model


def work_times(federation: Federation) -> list[float]:
    """Seconds from a task's arrival in the app to its reply, from the sites' audit logs."""
    measured = []
    for name in SITES:
        text = (federation.site(name) / "audit.jsonl").read_text()
        lines = [json.loads(line) for line in text.splitlines() if "train.task" in line]
        times = [datetime.fromisoformat(line["time"]).timestamp() for line in lines]
        came = {
            line["message"]: at for line, at in zip(lines, times, strict=True) if line["direction"] == "in"
        }
        # An error reply only says that the site does not have the model yet.
        measured += [
            at - came[line["reply_to"]]
            for line, at in zip(lines, times, strict=True)
            if line["direction"] == "out" and "error" not in line
        ]
    return measured


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--optimizer", default="sgd", choices=["sgd", "trust-region"])
    rounds, optimizer = vars(options.parse_args()).values()
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(Path(folder) / "trial", rounds, optimizer)
    formula = 4 * (measured["numbers in the model (D)"] + 2 * rounds * measured["rates (d)"])
    measured[f"4 (D + 2Td) bytes for T = {rounds}"] = formula
    measured["bytes on the wire / 4 (D + 2Td)"] = measured["bytes per site, all rounds"] / formula
    for name, value in measured.items():
        print(f"{name:48}{value:>14,.2f}")


if __name__ == "__main__":
    main()
