"""What comes back from sites in a round, and how long to wait for the rest. Knows no network and no clock."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from flwr.app import Message

from ttpfl.flower.messages import LACKING, MODEL, NUDGE, TRAIN
from ttpfl.util.printable import one_line

LONGEST_REASON = 1000  # characters of what a site says: it is shown and logged


class NotTaken(NamedTuple):
    """In place of a reply: the message did not even leave."""

    kind: str


Reply = Message | NotTaken


class PendingMessage(NamedTuple):
    """A message to a client that nothing has come back for."""

    client: int
    kind: str


@dataclass
class Counts:
    """Messages of a run that were not as they should be."""

    late: int = 0
    """Answers that came after their round was over."""
    duplicate: int = 0
    """Further answers to a message that was answered already, or never sent."""


@dataclass
class Waiting:
    """The clients of one round that work.

    The round ends `deadline` seconds after half of the answers are there, and after `longest` at any rate.
    An error is no answer: whoever refuses does so at once, which says nothing about how long the work takes.

    >>> waiting = Waiting({1, 2, 3}, deadline=60, longest=3600)
    >>> waiting.done(1, at=5.0)
    >>> waiting.end  # one of three: nobody knows yet how long it takes
    3600
    >>> waiting.done(2, at=8.0)
    >>> waiting.end, waiting.open
    (68.0, {3})
    """

    clients: set[int]
    deadline: float
    longest: float
    times: dict[int, float] = field(default_factory=dict)
    """Of answers."""
    errors: set[int] = field(default_factory=set)
    """Clients that there will be no answer of."""

    @property
    def open(self) -> set[int]:
        """Clients that are waited for."""
        return self.clients - self.times.keys() - self.errors

    @property
    def end(self) -> float:
        """When the round is over, in seconds after it began."""
        half = (len(self.clients) - len(self.errors) + 1) // 2
        if not half or len(self.times) < half:
            return self.longest
        return min(sorted(self.times.values())[half - 1] + self.deadline, self.longest)

    def done(self, client: int, at: float, error: bool = False) -> None:
        """Note a client's answer or its error."""
        if error:
            self.errors.add(client)
        else:
            self.times[client] = at


class Exchange:
    """The messages of one round: every client gets its task, and the model, if it says that it lacks it.

    Nobody waits for anybody else: what one client gets next depends on its own replies alone.

    Args:
        send: sends a client its message of a kind; gives the message's identity, or "" if it was not taken.
        waiting: for all clients of the round, and nobody else.
        quiet: seconds until a client that has said nothing is nudged.
    """

    def __init__(self, send: Callable[[int, str], str], waiting: Waiting, quiet: float) -> None:
        self._send, self._waiting, self._quiet = send, waiting, quiet
        self._given_model: set[int] = set()
        self._last: dict[int, float] = {}
        """When something was sent to or came from a client."""
        self.open: dict[str, PendingMessage] = {}
        """By identity."""
        self.replies: dict[int, Reply] = {}
        """The last word of every client that had one."""
        for client in sorted(waiting.clients):
            self._post(PendingMessage(client, TRAIN), at=0.0)

    def take(self, reply: Message, at: float) -> bool:
        """Note a reply and send what it calls for; False if it is to no open message of this round."""
        # An error's source is not the site, so the message that it replies to says whose it is.
        pending = self.open.pop(reply.metadata.reply_to_message_id, None)
        if pending is None:
            return False
        client, kind = pending
        self._last[client] = at
        if kind == NUDGE:
            pass
        elif kind == MODEL and failure_of(reply) is None:
            self._post(PendingMessage(client, TRAIN), at)
        elif kind == TRAIN and _lacks_model(reply) and client not in self._given_model:
            self._given_model.add(client)
            self._post(PendingMessage(client, MODEL), at)
        else:
            self._conclude(client, reply, at)
        return True

    def ping(self, at: float) -> None:
        """Send an empty message to those who have said nothing for a while, again after every answer to it.

        A run that is stopped just when a site fetches a message leaves that site's Flower process with an
        answer too many. From then on it sends each answer only when the next message comes: this one. It
        sends all that it has at once, so that it is never further behind.
        """
        nudged = {pending.client for pending in self.open.values() if pending.kind == NUDGE}
        for client in sorted(self._waiting.open - nudged):
            if at - self._last[client] >= self._quiet:
                self._post(PendingMessage(client, NUDGE), at)

    def _post(self, pending: PendingMessage, at: float) -> None:
        self._last[pending.client] = at
        if identity := self._send(*pending):
            self.open[identity] = pending
        elif pending.kind != NUDGE:
            self._conclude(pending.client, NotTaken(pending.kind), at)

    def _conclude(self, client: int, reply: Reply, at: float) -> None:
        self.replies[client] = reply
        self._waiting.done(client, at, error=failure_of(reply) is not None)


def failure_of(reply: Reply) -> str | None:
    """Why it is no answer; None if it is one."""
    if isinstance(reply, NotTaken):
        return f"Flower did not take the message {reply.kind} to it: see the superlink's log"
    if not reply.has_error():
        return None
    reason = one_line((reply.error.reason or "")[:LONGEST_REASON])
    return reason or f"Flower's error {reply.error.code}"


def _lacks_model(reply: Message) -> bool:
    return reply.has_error() and reply.error.code == LACKING


def count_strays(strays: Iterable[str], given_up: set[str], counts: Counts) -> None:
    """Count answers that belong to no open message: `given_up` are those of earlier rounds.

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
