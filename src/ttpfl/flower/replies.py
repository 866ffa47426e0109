"""The replies of a round, and how long to wait for missing ones. Uses no network and no clock."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from flwr.app import Message

from ttpfl.flower.messages import LACKING, MODEL, PING, TRAIN
from ttpfl.util.printable import one_line

LONGEST_REASON = 1000  # characters of a site's error that are shown and logged


class NotTaken(NamedTuple):
    """In place of a reply: Flower did not accept the message."""

    kind: str


Reply = Message | NotTaken


class PendingMessage(NamedTuple):
    """A message to a client that has no reply yet."""

    client: int
    kind: str


@dataclass
class Counts:
    """Unexpected replies of a run."""

    late: int = 0
    """Replies that came after the end of their round."""
    duplicate: int = 0
    """Replies to a message that already has one, or that was never sent."""


@dataclass
class Waiting:
    """The clients of a round, and which of them are done.

    The round ends `deadline` seconds after half of the results arrived, and after `longest` at the latest.
    An error is not a result: a refusal comes at once, and says nothing about how long the work takes.

    >>> waiting = Waiting({1, 2, 3}, deadline=60, longest=3600)
    >>> waiting.done(1, at=5.0)
    >>> waiting.end  # one of three: it is not known yet how long the work takes
    3600
    >>> waiting.done(2, at=8.0)
    >>> waiting.end, waiting.open
    (68.0, {3})
    """

    clients: set[int]
    deadline: float
    longest: float
    times: dict[int, float] = field(default_factory=dict)
    """When each result arrived."""
    errors: set[int] = field(default_factory=set)
    """Clients that will not send a result."""

    @property
    def open(self) -> set[int]:
        """Clients that are not done."""
        return self.clients - self.times.keys() - self.errors

    @property
    def end(self) -> float:
        """When the round ends, in seconds after its start."""
        half = (len(self.clients) - len(self.errors) + 1) // 2
        if not half or len(self.times) < half:
            return self.longest
        return min(sorted(self.times.values())[half - 1] + self.deadline, self.longest)

    def done(self, client: int, at: float, error: bool = False) -> None:
        """Record a client's result or its error."""
        if error:
            self.errors.add(client)
        else:
            self.times[client] = at


class Exchange:
    """The messages of one round: every client gets its task, and the model if it replies that it lacks it.

    Clients do not wait for each other: the next message to a client depends on its own replies only.

    Args:
        send: Sends a client a message of a kind; returns the message's id, or "" if it was not accepted.
        waiting: The clients of the round.
        ping_after: Seconds without a message to or from a client until it is pinged.
    """

    def __init__(self, send: Callable[[int, str], str], waiting: Waiting, ping_after: float) -> None:
        self._send, self._waiting, self._ping_after = send, waiting, ping_after
        self._sent_model: set[int] = set()
        self._last: dict[int, float] = {}  # time of the last message to or from a client
        self.open: dict[str, PendingMessage] = {}  # by message id
        self.replies: dict[int, Reply] = {}  # the final reply of every client that is done
        for client in sorted(waiting.clients):
            self._post(PendingMessage(client, TRAIN), at=0.0)

    def take(self, reply: Message, at: float) -> bool:
        """Process a reply, and send what it asks for; False if it belongs to no open message of the round."""
        # The source of an error is not the site, so the client is found by the message it replies to.
        if (pending := self.open.pop(reply.metadata.reply_to_message_id, None)) is None:
            return False
        client, kind = pending
        self._last[client] = at
        lacks_model = reply.has_error() and reply.error.code == LACKING
        if kind == PING:
            pass
        elif kind == MODEL and failure_of(reply) is None:
            self._post(PendingMessage(client, TRAIN), at)
        elif kind == TRAIN and lacks_model and client not in self._sent_model:
            self._sent_model.add(client)
            self._post(PendingMessage(client, MODEL), at)
        else:
            self._conclude(client, reply, at)
        return True

    def ping(self, at: float) -> None:
        """Send an empty message to clients that have been silent for a while, once until they reply to it.

        If a run is stopped just when a site fetches a message, the site's Flower process is left with a
        surplus reply. From then on it sends each reply only when the next message comes: this one. It then
        sends all replies that it has, so that it never falls further behind.
        """
        pinged = {pending.client for pending in self.open.values() if pending.kind == PING}
        for client in sorted(self._waiting.open - pinged):
            if at - self._last[client] >= self._ping_after:
                self._post(PendingMessage(client, PING), at)

    def _post(self, pending: PendingMessage, at: float) -> None:
        self._last[pending.client] = at
        if message_id := self._send(*pending):
            self.open[message_id] = pending
        elif pending.kind != PING:
            self._conclude(pending.client, NotTaken(pending.kind), at)

    def _conclude(self, client: int, reply: Reply, at: float) -> None:
        self.replies[client] = reply
        self._waiting.done(client, at, error=failure_of(reply) is not None)


def failure_of(reply: Reply) -> str | None:
    """Why a reply has no result; None if it has one."""
    if isinstance(reply, NotTaken):
        return f"Flower did not accept the message {reply.kind} to it: see the superlink's log"
    if not reply.has_error():
        return None
    reason = one_line((reply.error.reason or "")[:LONGEST_REASON])
    return reason or f"Flower's error {reply.error.code}"


def count_strays(strays: Iterable[str], given_up: set[str], counts: Counts) -> None:
    """Count replies that belong to no open message. `given_up` are messages of earlier rounds.

    >>> counts, given_up = Counts(), {"m9"}
    >>> count_strays(["m9", "m9"], given_up, counts)
    >>> counts, given_up
    (Counts(late=1, duplicate=1), set())
    """
    for message in strays:
        if message in given_up:
            given_up.discard(message)
            counts.late += 1
        else:
            counts.duplicate += 1
