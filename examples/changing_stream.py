"""A stream whose shift changes half-way, and ways to live with it.

A camera is moved: the first half of a stream comes from one new client, the second half from another one,
with another corruption and other frequent digits. ATP-online adapts to the mean of everything that it saw, so
the first half weighs on the second. `decay` forgets the past bit by bit. `reset` forgets it at once: when
somebody says that the camera was moved, or when `health`, which needs no labels, shows that the pictures have
changed. The alarm is a simple rule on the plain model's entropy: it can be late, false, or fail to come.
"""

from collections.abc import Callable
from itertools import pairwise

import torch
import typer
from torch import Tensor

from ttpfl import Personalizer
from ttpfl.data import federate
from ttpfl.federation import LearnSettings, TrainSettings, learn, train
from ttpfl.models import shallow_cnn

BATCH = 10
Watch = Callable[[int, Personalizer], bool]
"""Looks before each batch, by its number and at the health so far, whether to forget the past."""


def entropy_jumps(recent: int = 3, factor: float = 1.3) -> Watch:
    """Whether the plain model is much more, or less, sure of the last few batches than of those before."""
    seen: list[float] = []

    def watch(number: int, personal: Personalizer) -> bool:
        if personal.health.last is not None:
            seen.append(personal.health.last.entropy_before)
        before, now = seen[:-recent], seen[-recent:]
        if len(before) < recent:
            return False
        ratio = (sum(now) / len(now)) / (sum(before) / len(before))
        alarm = not 1 / factor < ratio < factor
        if alarm:
            seen.clear()
        return alarm

    return watch


def answered(stream: list[Tensor], personal: Personalizer, watch: Watch) -> tuple[list[Tensor], int]:
    """Predictions for every batch of a stream, and how often the past was forgotten."""
    answers, resets = [], 0
    for number, batch in enumerate(stream):
        if watch(number, personal):
            personal.reset()
            resets += 1
        answers.append(personal(batch).argmax(1))
    return answers, resets


def main(rounds: int = 12, rate_rounds: int = 20, samples: int = 100) -> None:
    """Train, learn rates, and look at both halves of eight streams."""
    torch.manual_seed(0)
    clients, labels, _ = federate("digits", shift="hybrid", samples=samples)
    begin = shallow_cnn(num_classes=10, image_size=28)
    model, _ = train(begin, clients.source, TrainSettings(rounds=rounds, workers=0))
    settings = LearnSettings(rounds=rate_rounds, batch_size=BATCH, mode="online", workers=0)
    rates, _ = learn(model, clients.source, settings)
    nothing = rates.with_values(torch.zeros_like(rates.values))
    half = -(-samples // BATCH)  # batches

    print(f"{'':26}{'first half':>12}{'second half':>13}{'resets per stream':>19}")
    for name, chosen, decay, new_watch in (
        ("no adaptation", nothing, None, lambda: lambda number, personal: False),
        ("online", rates, None, lambda: lambda number, personal: False),
        ("online, decay=0.8", rates, 0.8, lambda: lambda number, personal: False),
        ("online, reset when told", rates, None, lambda: lambda number, personal: number == half),
        ("online, reset by health", rates, None, entropy_jumps),
    ):
        right, resets = torch.zeros(2), 0
        for before, after in pairwise(clients.target):
            stream = [*before.stream(BATCH), *after.stream(BATCH)]
            personal = Personalizer(model, chosen, mode="online", decay=decay)
            answers, count = answered(stream, personal, new_watch())
            for part, client in enumerate((before, after)):
                said = torch.cat(answers[part * half : (part + 1) * half])
                right[part] += (said == labels[client.id]).float().mean()
            resets += count
        first, second = right / (len(clients.target) - 1)
        print(f"{name:26}{first:>12.1%}{second:>13.1%}{resets / (len(clients.target) - 1):>19.1f}")


if __name__ == "__main__":
    typer.run(main)
