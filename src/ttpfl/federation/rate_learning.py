"""Rate learning over source clients, on all cores."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike

from torch import nn

from ttpfl.core.direction import Objective, entropy
from ttpfl.core.learning import Loss, cross_entropy
from ttpfl.core.outputs import Readout
from ttpfl.core.rates import Rates
from ttpfl.federation.checkpoints.callbacks import Callback
from ttpfl.federation.common.client_pool import Clients
from ttpfl.federation.common.jobs import MakeEngine
from ttpfl.federation.rate_run import Learned, RateRun
from ttpfl.federation.settings import LearnSettings


def learn(
    model: nn.Module,
    clients: Clients,
    settings: LearnSettings | None = None,
    *,
    rates: Rates | None = None,
    run_dir: str | PathLike[str] | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    evaluate: Callable[[Rates], Mapping[str, float]] | None = None,
    objective: Objective = entropy,
    loss: Loss = cross_entropy,
    logits: Readout | None = None,
    engine: MakeEngine | None = None,
    noise_key: bytes | None = None,
    unseen: Sequence[nn.Module] = (),
) -> Learned:
    """Learn rates for `model` on the clients' validation data: `learn_rates` on all cores, and resumable.

    A client that fails is left out of the round with a warning; see `LearnSettings.min_reply_fraction`.

    Args:
        model: The global model; it is not changed.
        clients: A population's source clients, or data as `learn_rates` takes it.
        settings: Settings of the run.
        rates: Rates to start from; zeros if None. They also set the granularity and which modules get rates.
        run_dir: Folder for checkpoints, history and finally `rates.safetensors`; nothing is kept if None.
        resume: Resume from the newest checkpoint in `run_dir`, with the same bits as without interruption.
        callbacks: Additional callbacks.
        evaluate: Returns metrics on target clients for rates; called every `eval_every` rounds.
        objective: Maps logits to the unsupervised loss.
        loss: Maps logits and labels to the supervised loss.
        logits: Maps the model's output to logits.
        engine: Creates the engine that runs clients; processes on this machine if None.
        noise_key: Secret key of the noise of `settings.privacy`, for repeatable studies. If None, a new one
            that is kept in `run_dir`; local noise then uses a new key every time.
        unseen: Models in place of `model` that did not see a client's data, for cross-fitting: client i
            adapts number i modulo their count. The rates are for `model`.

    >>> import torch
    >>> clients = {name: (torch.randn(8, 3), torch.randint(2, (8,))) for name in ("north", "south")}
    >>> learned = learn(nn.Linear(3, 2), clients, LearnSettings(rounds=2, batch_size=4, workers=0))
    >>> len(learned.history)
    2
    """
    settings = settings or LearnSettings()
    run = RateRun(model, clients, settings, rates, objective, loss, logits, unseen, engine, noise_key)
    return run(run_dir, resume, callbacks, evaluate)
