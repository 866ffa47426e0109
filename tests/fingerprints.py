"""Hashes of what the library computes, to see that a change of its structure changes no bit.

    python tests/fingerprints.py --write before.json      # before the change
    python tests/fingerprints.py --compare before.json    # after it

Bits depend on the processor and on the version of torch, so both files must come from one machine.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor, nn

import ttpfl
from helpers import networks, small_clients
from ttpfl import methods
from ttpfl.errors import MethodError, RatesError
from ttpfl.federation import LearnSettings, TrainSettings, learn, train
from ttpfl.report import tables

ROOT = Path(__file__).resolve().parents[1]
Prints = Iterator[tuple[str, str]]


def of_tensors(tensors: Iterable[Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def of_model(model: nn.Module) -> str:
    return of_tensors(model.state_dict().values())


def learned_rates() -> Prints:
    for name in ("cnn18", "groupnorm", "vit"):
        clients = {f"client-{seed}": networks.batches(name, 2, seed=seed) for seed in range(4)}
        pairs = {key: tuple(map(torch.cat, zip(*batches, strict=True))) for key, batches in clients.items()}
        for mode in ("batch", "online"):
            rates = ttpfl.learn_rates(networks.make(name), pairs, 3, 2, 0.05, 8, mode=mode)
            yield f"learn_rates/{name}/{mode}", of_tensors([rates.values])
            settings = LearnSettings(rounds=3, cohort=2, lr=0.05, batch_size=8, mode=mode, workers=0)
            yield (
                f"learn/{name}/{mode}",
                of_tensors([learn(networks.make(name), pairs, settings).rates.values]),
            )


def trained_models() -> Prints:
    shape = (3, 6, 6)
    for algorithm in ("fedavg", "fedprox", "qffl"):
        for workers in (0, 2):
            settings = TrainSettings(rounds=2, batch_size=4, algorithm=algorithm, workers=workers)
            found = train(small_clients.cnn(), small_clients.clients(shape=shape), settings)
            yield f"train/{algorithm}/{workers} workers", of_model(found.model)


def logits_of_methods() -> Prints:
    for network in ("cnn18", "groupnorm"):
        model = networks.make(network)
        rates = {}
        for kind, only in (("all", None), ("params", "params"), ("stats", "stats")):
            with suppress(RatesError):
                rates[kind] = networks.some_rates(model, only=only)
        source = [networks.batches(network, count=2, seed=seed) for seed in (11, 12)]
        stream = [networks.batches(network, 1, size, seed)[0][0] for seed, size in enumerate((8, 8, 3))]
        for name in methods.names():
            method = methods.make(name)
            torch.manual_seed(0)
            try:
                summary = methods.add(method.summary(model, client) for client in source)
                adapter = method.adapter(model, methods.SourceInfo(summary=summary, rates=rates))
            except MethodError:  # it does not fit this network
                continue
            yield f"logits/{name}/{network}", of_tensors([adapter(batch) for batch in stream])


def rendered_tables() -> Prints:
    for file in sorted((ROOT / "results").glob("*.json")):
        text = tables.markdown(json.loads(file.read_text()))
        yield f"table/{file.stem}", hashlib.sha256(text.encode()).hexdigest()


def fingerprints() -> dict[str, str]:
    torch.set_num_threads(1)
    prints: dict[str, str] = {}
    for part in (learned_rates, trained_models, logits_of_methods, rendered_tables):
        torch.manual_seed(0)
        prints.update(part())
    return prints


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--write", type=Path)
    todo.add_argument("--compare", type=Path)
    arguments = parser.parse_args()
    found = fingerprints()
    if arguments.write:
        arguments.write.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{len(found)} hashes written")
        return
    before = json.loads(arguments.compare.read_text())
    changed = sorted(name for name in before.keys() | found.keys() if before.get(name) != found.get(name))
    print("\n".join(changed) if changed else f"all {len(found)} hashes are the same")
    sys.exit(bool(changed))


if __name__ == "__main__":
    main()
