"""Training a global model over source clients."""

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from math import log
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ttpfl.core.learning import Loss, cross_entropy
from ttpfl.core.network import model_hash, uncompiled
from ttpfl.core.outputs import Readout
from ttpfl.errors import DivergenceWarning, ModelWarning
from ttpfl.federation.checkpoints.callbacks import Callback, RunInfo
from ttpfl.federation.checkpoints.identity import common
from ttpfl.federation.clients.local_training import LocalTrainer
from ttpfl.federation.clients.model_work import ModelServer, ModelWork, algorithm_of
from ttpfl.federation.clients.survey import Survey, surveyed
from ttpfl.federation.common.client_pool import ClientPool, Clients
from ttpfl.federation.common.jobs import MakeEngine
from ttpfl.federation.common.state import Record, RunState
from ttpfl.federation.common.state_vector import layout_of, pack, unpack
from ttpfl.federation.engine.session import Session, Validate
from ttpfl.federation.settings import TrainSettings
from ttpfl.models.files import save_model

DIVERGED = 1.5
"""A loss has diverged above this factor times both the loss before training and the loss of guessing."""


class Trained(NamedTuple):
    """A global model in evaluation mode, and the history of its training."""

    model: nn.Module
    history: list[Record]


def train(
    model: nn.Module,
    clients: Clients,
    settings: TrainSettings | None = None,
    *,
    run_dir: str | PathLike[str] | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    evaluate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    loss: Loss = cross_entropy,
    logits: Readout | None = None,
    card: Mapping[str, Any] | None = None,
    engine: MakeEngine | None = None,
) -> Trained:
    """Train a copy of `model` over clients by federated averaging.

    A client that fails is left out of the round with a warning; see `TrainSettings.min_reply_fraction`.

    Args:
        model: The model to start from; it is not changed.
        clients: A population's source clients, or data as `learn_rates` takes it.
        settings: Settings of the run.
        run_dir: Folder for checkpoints, history and finally `model.safetensors`; nothing is kept if None.
        resume: Resume from the newest checkpoint in `run_dir`, with the same bits as without interruption.
        callbacks: Additional callbacks.
        evaluate: Returns metrics on target clients for a model; called every `eval_every` rounds.
        loss: Maps logits and labels to the loss.
        logits: Maps the model's output to logits.
        card: Plain data to keep in `model.safetensors`; see `save_model`.
        engine: Creates the engine that runs clients; processes on this machine if None.

    >>> clients = {name: (torch.randn(8, 3), torch.randint(2, (8,))) for name in ("north", "south")}
    >>> trained = train(nn.Linear(3, 2), clients, TrainSettings(rounds=2, batch_size=4, workers=0))
    >>> [record["round"] for record in trained.history]
    [0, 1]
    """
    settings, model = settings or TrainSettings(), uncompiled(model)
    session, layout = _session(model, ClientPool(clients), settings, loss, logits, engine), layout_of(model)
    initial = pack(model, torch.empty(layout.length, dtype=layout.dtype))
    target = None if evaluate is None else lambda vector: evaluate(with_state(model, vector))
    # Real sites only return models.
    finish = partial(_check, initial) if settings.check and engine is None else None
    state, finding = session.run(initial, run_dir, resume, callbacks, target, finish)
    result = with_state(model, state.result)
    if run_dir is not None:
        checked = {} if finding is None else {"checked": finding.now.recorded()}
        entries = {"trained": asdict(settings), **checked, **(card or {})}
        save_model(Path(run_dir) / "model.safetensors", result, **entries)
    if finding is not None:  # only after the model is saved: a warning may be raised as an error
        finding.warn(settings.lr)
    return Trained(result, state.history)


def _session(
    model: nn.Module,
    pool: ClientPool,
    settings: TrainSettings,
    loss: Loss,
    logits: Readout | None,
    engine: MakeEngine | None,
) -> Session:
    layout, algorithm, cohort = layout_of(model), algorithm_of(settings), pool.cohort(settings.cohort)

    def work() -> ModelWork:
        trainer = LocalTrainer(copy.deepcopy(model), settings, algorithm.proximal, loss, logits)
        return ModelWork(trainer, pool, layout, settings, algorithm.needs_loss_before)

    def identity() -> dict[str, Any]:
        return {"kind": "train", "model": model_hash(model), **common(pool, loss=loss, logits=logits)}

    info = RunInfo("train", settings.rounds, len(pool), cohort, layout.length, layout.length)
    server = ModelServer(algorithm, layout, settings.lr, local=settings.buffers == "local")
    return Session(info, settings, pool, server, work, sticky=False, identity=identity, make_engine=engine)


class Finding(NamedTuple):
    """Metrics on validation data after training and, if the model is no better than chance, before it."""

    now: Survey
    before: Survey | None

    def warn(self, lr: float) -> None:
        """Warn if the model is no better than chance."""
        if self.before is None:
            return
        now, before = self.now.mean_loss, self.before.mean_loss
        chance = f"the model is no better than chance ({self.now.in_words()})"
        if diverged(before, now, self.now.classes):
            rise = f"training diverged: the loss rose from {before:.4g} to {now:.4g}, and {chance}"
            warnings.warn(f"{rise}; lower lr (it is {lr:g})", DivergenceWarning, stacklevel=3)
        else:
            change = f"the loss went from {before:.4g} to {now:.4g}"
            collapsed = len(self.now.predicted) == 1 < len(self.before.predicted)
            remedy = f"train longer, or {'lower' if collapsed else 'with another'} lr (it is {lr:g})"
            warnings.warn(f"{chance}, and {change}: {remedy}", ModelWarning, stacklevel=3)


def diverged(before: float, now: float, classes: int) -> bool:
    """Whether a loss is not finite, or above 1.5 times both the loss before training and that of guessing.

    A few or very small steps leave a model at chance with a slightly different loss. This is no divergence.

    >>> diverged(2.31, 2.334, classes=10), diverged(2.31, 8.0, classes=10)
    (False, True)
    """
    return not now <= DIVERGED * max(before, log(classes))


def _check(initial: Tensor, state: RunState, validate: Validate) -> Finding:
    now = surveyed(validate(state.result))
    return Finding(now, surveyed(validate(initial)) if now.at_chance else None)


def with_state(model: nn.Module, vector: Tensor) -> nn.Module:
    """A copy of `model` with the state in `vector`, in evaluation mode."""
    result = copy.deepcopy(model).eval()
    unpack(vector, result)
    return result
