"""An engine whose clients are real sites: jobs go out as Flower messages, results come back in order."""

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
from ttpfl.flower.messages import MODEL, PING, TRAIN, ModelCard, Task, model_records, read_reply, task_records
from ttpfl.flower.replies import Counts, Exchange, NotTaken, Reply, Waiting, count_strays, failure_of
from ttpfl.flower.timeouts import Timeouts

log = logging.getLogger("ttpfl")

POLL = 0.5  # seconds between requests for replies
LARGEST_SUM = 1e30
"""Limit of the numbers in a reply about a guard; `GuardVector.fault` knows what they mean."""


@dataclass(frozen=True)
class Assignment:
    """The part that all tasks of a run share."""

    kind: str
    clients: int
    settings: dict[str, Any]
    card: ModelCard
    rates: dict[str, Any]
    largest: float
    """Limit of the numbers in a reply."""


class GridEngine:
    """Sends a round's jobs to the sites that have the clients' names.

    Args:
        grid: Flower's connection to the sites.
        assignment: The part that all tasks share.
        state: The model's weights, for sites that lack it.
        timeouts: How long to wait.
        length: Length of the vectors sent and received.
        dtype: Their type.
        clock: Returns the time in seconds; tests replace it, and `sleep`.
        sleep: Waits for a number of seconds.
        identities: Identities by name, whose replies count; None trusts the names of nodes.
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
        self._grid, self._assignment, self._state, self._timeouts = grid, assignment, state, timeouts
        self._length, self._dtype, self._clock, self._sleep = length, dtype, clock, sleep
        self._identities = identities
        self._impostors: dict[str, str] = {}  # why a node with a site's name is not that site
        self._given_up: set[str] = set()
        self.counts = Counts()

    def run(self, jobs: Sequence[Job], message: Tensor) -> Iterator[ClientResult]:
        """The results of all jobs, in their order, after the round has ended."""
        nodes = self._nodes()
        tasks = {job.client: self._task(job) for job in jobs}
        messages = {
            job.client: (nodes[job.name], task_records(tasks[job.client], message, job.start))
            for job in jobs
            if job.name in nodes
        }
        replies = self._exchange(messages)
        if any(client not in replies or failure_of(replies[client]) for client in messages):
            # The messages of a run that is being stopped vanish, as if sites had failed. Flower refuses every
            # further request of such a run, so this one ends it, before the round counts without these sites.
            self._nodes()
        for job in jobs:
            if job.client not in messages:
                yield ClientResult(job, message, {}, self._impostors.get(job.name, "is not connected"))
            else:
                yield self._result(job, tasks[job.client], replies.get(job.client), message)

    def close(self) -> None:
        """Do nothing: the grid belongs to Flower."""

    def await_sites(self, names: Sequence[str]) -> None:
        """Wait until all sites are connected, or until the timeout."""
        end = self._clock() + self._timeouts.connect
        while (absent := set(names) - self._nodes().keys()) and self._clock() < end:
            self._sleep(POLL)
        if absent:
            log.warning("starting without %s: not connected", ", ".join(sorted(absent)))

    def _nodes(self) -> dict[str, int]:
        nodes = self._grid.get_nodes()
        if self._identities is None:
            return {node.name: node.node_id for node in nodes if node.name}
        sites, impostors = recognised(nodes, self._identities)
        for name in impostors.keys() - self._impostors.keys():
            log.warning("refused: %s", impostors[name])
        self._impostors = impostors
        return sites

    def _task(self, job: Job) -> Task:
        run, card = self._assignment, self._assignment.card
        kind = "guard" if job.guard else run.kind
        about = (kind, job.round, job.client, run.clients, run.settings)
        return Task(*about, card.hash, card.fingerprint, run.rates)

    def _result(self, job: Job, task: Task, reply: Reply | None, message: Tensor) -> ClientResult:
        if reply is None:
            return ClientResult(job, message, {}, "did not reply in time")
        if isinstance(reply, NotTaken) or reply.has_error():
            return ClientResult(job, message, {}, failure_of(reply))
        try:
            largest = LARGEST_SUM if job.guard else self._assignment.largest
            vector, report = read_reply(reply.content, task, self._length, largest)
            return ClientResult(job, vector.to(self._dtype), report, None)
        except RefusedError as refusal:
            failure = str(refusal)
        except Exception as error:  # the round continues whatever one site sends
            failure = f"cannot read its reply: {type(error).__name__}: {error}"
        return ClientResult(job, message, {}, failure)

    def _exchange(self, messages: Mapping[int, tuple[int, RecordDict]]) -> dict[int, Reply]:
        """Send each client's node its task, and the model if it lacks it; the replies in time, by client."""

        def send(client: int, kind: str) -> str:
            node, task = messages[client]
            records = task if kind == TRAIN else RecordDict()  # a ping is empty
            if kind == MODEL:
                records = model_records(self._assignment.card, self._state)
            # One at a time: together they may be too large for one request. For a message that it cannot
            # store, Flower returns "", and for one that is too large, nothing at all.
            sent = self._grid.push_messages([Message(records, node, kind, ttl=self._timeouts.longest)])
            return next((message_id or "" for message_id in sent), "")

        waiting = Waiting(set(messages), self._timeouts.deadline, self._timeouts.longest)
        exchange, start = Exchange(send, waiting, self._timeouts.ping_after), self._clock()
        while waiting.open and self._clock() - start < waiting.end:
            replies = self._grid.pull_messages(sorted(exchange.open.keys() | self._given_up))
            strays = [reply for reply in replies if not exchange.take(reply, self._clock() - start)]
            # An error is Flower's report that no reply will come.
            self._given_up -= {stray.metadata.reply_to_message_id for stray in strays if stray.has_error()}
            unexpected = [stray.metadata.reply_to_message_id for stray in strays if not stray.has_error()]
            count_strays(unexpected, self._given_up, self.counts)
            if waiting.open:
                exchange.ping(self._clock() - start)
                self._sleep(POLL)
        self._given_up |= {key for key, pending in exchange.open.items() if pending.kind != PING}
        return exchange.replies
