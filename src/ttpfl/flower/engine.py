"""An engine whose clients are real sites: jobs go out as Flower messages, answers come back in order."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from ttpfl.errors import RefusedError
from ttpfl.federation.common.jobs import ClientResult, Job
from ttpfl.flower.identity import Identity, recognised
from ttpfl.flower.messages import (
    MODEL,
    NUDGE,
    TRAIN,
    ModelCard,
    Task,
    model_records,
    read_answer,
    task_records,
)
from ttpfl.flower.replies import Counts, Exchange, NotTaken, Reply, Waiting, count_strays, failure_of
from ttpfl.flower.timeouts import Timeouts

log = logging.getLogger("ttpfl")

POLL = 0.5  # seconds from one look for answers to the next


@dataclass(frozen=True)
class Assignment:
    """What all tasks of a run have in common."""

    kind: str
    clients: int
    settings: dict[str, Any]
    card: ModelCard
    rates: dict[str, Any]
    largest: float
    """Of the numbers in an answer."""


class GridEngine:
    """Sends a round's jobs to the sites that Flower knows by the clients' names.

    Args:
        grid: Flower's connection to the sites.
        assignment: see there.
        state: the model's weights, for sites that do not have it.
        patience: how long to wait.
        length: of the vectors that sites get and give.
        dtype: their type.
        identities: whose answers count, by name; None: names are believed.
    """

    def __init__(
        self,
        grid: Grid,
        assignment: Assignment,
        state: Mapping[str, Tensor],
        timeouts: Timeouts,
        length: int,
        dtype: torch.dtype,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        identities: Mapping[str, Identity] | None = None,
    ) -> None:
        self._grid, self._assignment, self._state, self._patience = grid, assignment, state, timeouts
        self._length, self._dtype, self._clock, self._sleep = length, dtype, clock, sleep
        self._identities = identities
        self._strangers: dict[str, str] = {}
        """Why nodes with the names of sites are not taken for these."""
        self._given_up: set[str] = set()
        self.counts = Counts()

    def run(self, jobs: Sequence[Job], message: Tensor) -> Iterator[ClientResult]:
        """The answers of all jobs, in their order, when the round is over."""
        nodes = self._nodes()
        present = {job.client: nodes[job.name] for job in jobs if job.name in nodes}
        tasks = {job.client: self._task(job) for job in jobs}
        messages = {
            job.client: (present[job.client], task_records(tasks[job.client], message, job.start))
            for job in jobs
            if job.client in present
        }
        replies = self._exchange(messages)
        if any(client not in replies or failure_of(replies[client]) for client in messages):
            # The messages of a run that is being stopped vanish, as if sites had failed. Flower answers no
            # further question of such a run, so this one ends it here, before the round counts without them.
            self._nodes()
        for job in jobs:
            if job.client not in present:
                yield ClientResult(job, message, {}, self._strangers.get(job.name, "is not connected"))
            else:
                yield self._answer(job, tasks[job.client], replies.get(job.client), message)

    def close(self) -> None:
        """The grid belongs to Flower."""

    def await_sites(self, names: Sequence[str]) -> None:
        """Wait until all are connected, or long enough."""
        end = self._clock() + self._patience.connect
        while (absent := set(names) - self._nodes().keys()) and self._clock() < end:
            self._sleep(POLL)
        if absent:
            log.warning("beginning without %s: not connected", ", ".join(sorted(absent)))

    def _nodes(self) -> dict[str, int]:
        nodes = self._grid.get_nodes()
        if self._identities is None:
            return {node.name: node.node_id for node in nodes if node.name}
        known, strangers = recognised(nodes, self._identities)
        for name in strangers.keys() - self._strangers.keys():
            log.warning("refused: %s", strangers[name])
        self._strangers = strangers
        return known

    def _task(self, job: Job) -> Task:
        common = self._assignment
        return Task(
            common.kind,
            job.round,
            job.client,
            common.clients,
            common.settings,
            common.card.hash,
            common.card.fingerprint,
            common.rates,
        )

    def _answer(self, job: Job, task: Task, reply: Reply | None, message: Tensor) -> ClientResult:
        if reply is None:
            return ClientResult(job, message, {}, "did not answer in time")
        if isinstance(reply, NotTaken) or reply.has_error():
            return ClientResult(job, message, {}, failure_of(reply))
        try:
            vector, report = read_answer(reply.content, task, self._length, self._assignment.largest)
            return ClientResult(job, vector.to(self._dtype), report, None)
        except RefusedError as refusal:
            return ClientResult(job, message, {}, str(refusal))
        except Exception as error:  # whatever one site sends, the others go on
            return ClientResult(
                job, message, {}, f"its answer cannot be read: {type(error).__name__}: {error}"
            )

    def _exchange(self, messages: Mapping[int, tuple[int, RecordDict]]) -> dict[int, Reply]:
        """Send each client's node its task, and the model if it lacks it; what came in time, by client."""

        def send(client: int, kind: str) -> str:
            node, task = messages[client]
            records = {TRAIN: lambda: task, MODEL: self._model, NUDGE: RecordDict}[kind]()
            return self._send(Message(records, node, kind, ttl=self._patience.longest))

        waiting = Waiting(set(messages), self._patience.deadline, self._patience.longest)
        exchange, begin = Exchange(send, waiting, self._patience.nudge_after), self._clock()
        while waiting.open and self._clock() - begin < waiting.end:
            strays = []
            for reply in self._grid.pull_messages(sorted(exchange.open.keys() | self._given_up)):
                about = reply.metadata.reply_to_message_id
                if exchange.take(reply, self._clock() - begin):
                    continue
                if reply.has_error():
                    self._given_up.discard(about)  # Flower says that nothing will come any more
                else:
                    strays.append(about)
            count_strays(strays, self._given_up, self.counts)
            if waiting.open:
                exchange.ping(self._clock() - begin)
                self._sleep(POLL)
        self._given_up |= {identity for identity, pending in exchange.open.items() if pending.kind != NUDGE}
        return exchange.replies

    def _model(self) -> RecordDict:
        return model_records(self._assignment.card, self._state)

    def _send(self, message: Message) -> str:
        """The message's identity, by which its reply is found; empty if Flower does not take it."""
        # One at a time: together they may be too large for one request. For a message that it cannot keep,
        # Flower gives "", and nothing at all for one that is too large.
        return next((identity or "" for identity in self._grid.push_messages([message])), "")
