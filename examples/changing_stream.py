"""Handle a stream whose shift changes half-way.

A camera is moved: the first half of the stream comes from one new client, the second half from another one
with a different corruption and different frequent digits. ATP-online adapts to the mean of the whole
stream, so the first half affects the second. `decay` forgets the past gradually. `reset` forgets it at
once: either when someone reports the change, or when `health`, which needs no labels, shows that the
adaptation no longer fits. The alarm is a simple rule: it can be late, false or missing.
"""

from collections.abc import Callable
from itertools import pairwise

import torch
import typer
from torch import Tensor

from ttpfl import Personalizer, learn_rates
from ttpfl.data import federate
from ttpfl.federation import TrainSettings, train
from ttpfl.models import shallow_cnn

BATCH = 10
Watch = Callable[[int, Personalizer], bool]
"""Called before each batch with its number and the personalizer; returns whether to reset."""


def gain_falls(recent: int = 4, part: float = 0.7) -> Watch:
    """Signal when adaptation lowers the entropy much less on recent batches than on earlier ones."""
    gains: list[float] = []

    def watch(number: int, personal: Personalizer) -> bool:
        if personal.health.batches > 1:  # the very first batch is adapted to itself alone
            last = personal.health.last
            gains.append(last.entropy_before - last.entropy_after)
        before, now = gains[:-recent], gains[-recent:]
        alarm = len(before) >= recent and sum(now) / recent < part * sum(before) / len(before)
        if alarm:
            gains.clear()
        return alarm

    return watch


def predict_stream(stream: list[Tensor], personal: Personalizer, watch: Watch) -> tuple[list[Tensor], int]:
    """Predictions for every batch of a stream, and the number of resets."""
    predictions, resets = [], 0
    for number, batch in enumerate(stream):
        if watch(number, personal):
            personal.reset()
            resets += 1
        predictions.append(personal(batch).argmax(1))
    return predictions, resets


def main(rounds: int = 10, clients: int = 24, samples: int = 100) -> None:
    """Train, learn rates, and evaluate both halves of changing streams."""
    torch.manual_seed(0)
    choices = {"source_clients": clients, "target_clients": clients // 3, "samples": samples}
    population, labels, _ = federate("digits", shift="hybrid", **choices)
    begin = shallow_cnn(num_classes=10, image_size=28)
    model, _ = train(begin, population.source, TrainSettings(rounds=rounds, workers=0))
    rates = learn_rates(model, population.source, batch_size=BATCH)
    nothing = rates.with_values(torch.zeros_like(rates.values))
    half = -(-samples // BATCH)  # batches

    print(f"{'':26}{'first half':>12}{'second half':>13}{'resets per stream':>19}")
    for name, chosen, decay, new_watch in (
        ("no adaptation", nothing, None, lambda: lambda number, personal: False),
        ("online", rates, None, lambda: lambda number, personal: False),
        ("online, decay=0.8", rates, 0.8, lambda: lambda number, personal: False),
        ("online, reset on request", rates, None, lambda: lambda number, personal: number == half),
        ("online, reset by health", rates, None, gain_falls),
    ):
        accuracies, resets, streams = torch.zeros(2), 0, len(population.target) - 1
        for before, after in pairwise(population.target):
            stream = [*before.stream(BATCH), *after.stream(BATCH)]
            personal = Personalizer(model, chosen, mode="online", decay=decay)
            predictions, count = predict_stream(stream, personal, new_watch())
            for part, client in enumerate((before, after)):
                predicted = torch.cat(predictions[part * half : (part + 1) * half])
                accuracies[part] += (predicted == labels[client.id]).float().mean() / streams
            resets += count
        print(f"{name:26}{accuracies[0]:>12.1%}{accuracies[1]:>13.1%}{resets / streams:>19.1f}")


if __name__ == "__main__":
    typer.run(main)
