"""Sites for tests, and a grid that calls their app in this process: all but the network."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from flwr.app import Message
from flwr.supercore.task_identity import TaskIdentity
from torch import Tensor, nn

from ttpfl.data.clients import SourceClient
from ttpfl.flower.site import Site
from ttpfl.flower.site_app import app
from ttpfl.flower.site_work import client_of
from ttpfl.models import build
from ttpfl.models.files import save_model

# Messages are signed with the identity of the process that makes them, which Flower sets when it starts one.
TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

NAMES = ["north", "south", "west"]
BUILD = {"name": "shallow_cnn", "num_classes": 10, "image_size": 28}


def write_data(folder: Path, seed: int, count: int = 60) -> None:
    """Gray squares, brighter for higher classes, as a site's only client."""
    random = np.random.default_rng(seed)
    y = random.integers(10, size=count)
    x = (random.integers(60, size=(count, 28, 28)) + 15 * y[:, None, None] + 10 * seed).astype(np.uint8)
    (folder / "data" / "source").mkdir(parents=True, exist_ok=True)
    np.savez(folder / "data" / "source" / "own.npz", x=x, y=y)


def make_site(folder: Path, name: str, number: int, more: str = "") -> Path:
    write_data(folder, number)
    path = folder / "site.toml"
    path.write_text(f'name = "{name}"\n{more}')
    return path


def make_sites(folder: Path) -> dict[str, Path]:
    return {name: make_site(folder / name, name, number) for number, name in enumerate(NAMES)}


def local_clients(sites: dict[str, Path]) -> dict[str, SourceClient]:
    """What the local engine gets to work on the same data."""
    return {name: client_of(Site.read(path)) for name, path in sites.items()}


def begin_model(path: Path) -> nn.Module:
    torch.manual_seed(1)
    model = build(**BUILD).eval()
    save_model(path, model, build=BUILD)
    return model


class Node(NamedTuple):
    node_id: int
    name: str


Fault = Callable[[str, Message], Message | None]
"""From a site's name and its reply to what comes of it; None: it is lost."""


@dataclass
class InProcessGrid:
    """What of Flower's Grid the engine uses."""

    sites: dict[str, Path]
    absent: set[str] = field(default_factory=set)
    untaken: dict[str, list[str]] = field(default_factory=dict)
    """What Flower says, by site, instead of taking a message: [""], or [] if it is too large."""
    fault: Fault = lambda name, reply: reply
    delayed: list[Message] = field(default_factory=list)
    """Handed out with the next replies, whoever asks."""
    seconds: dict[str, float] = field(default_factory=dict)
    """How long sites take for each reply, by name; others take no time."""
    clock: Callable[[], float] = lambda: 0.0
    sent: list[Message] = field(default_factory=list)
    replies: list[Message] = field(default_factory=list)
    _waiting: dict[str, tuple[float, Message]] = field(default_factory=dict)
    """When a reply is there, and the reply."""

    def get_nodes(self) -> Iterator[Node]:
        return (Node(i + 1, name) for i, name in enumerate(self.sites) if name not in self.absent)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        identities = []
        for message in messages:
            name = list(self.sites)[message.metadata.dst_node_id - 1]
            if name in self.untaken:
                identities += self.untaken[name]
                continue
            identity = message.object_id
            message.metadata.__dict__["_message_id"] = identity
            self.sent.append(message)
            identities.append(identity)
            reply = self.fault(name, call(self.sites[name], message))
            if reply is not None:
                self.replies.append(reply)
                there = self.clock() + self.seconds.get(name, 0.0)
                self._waiting[reply.metadata.reply_to_message_id] = there, reply
        return identities

    def pull_messages(self, identities: Iterable[str]) -> list[Message]:
        there = [name for name in identities if name in self._waiting and self._is_there(name)]
        found = [self._waiting.pop(identity)[1] for identity in there] + self.delayed
        self.delayed = []
        return found

    def _is_there(self, identity: str) -> bool:
        return self._waiting[identity][0] <= self.clock()


def call(site: Path, message: Message) -> Message:
    """What a site's app answers."""
    return app(site, message)


class Clock:
    """Time passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def arrays_of(message: Message) -> dict[str, Any]:
    return {
        f"{record}/{name}": array.numpy()
        for record, arrays in message.content.array_records.items()
        for name, array in arrays.items()
    }


def largest_difference(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).abs().max())
