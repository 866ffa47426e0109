"""A model that adapts to the unlabelled stream it sees."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from ttpfl.core.direction import Objective, check_finite, distance, entropy, move, probe
from ttpfl.core.health import Health, HealthFigures, changed_share
from ttpfl.core.influence import Seen
from ttpfl.core.inputs import Inputs, all_finite, checked
from ttpfl.core.label_prior import LABEL_PRIOR
from ttpfl.core.outputs import Readout
from ttpfl.core.rates import MODES, Mode, Rates
from ttpfl.core.running import RunningDirection
from ttpfl.core.running_prior import RunningPrior
from ttpfl.core.running_state import RunningState, mean_dtype
from ttpfl.core.safeguard import Safeguard
from ttpfl.core.snapshot import Snapshots
from ttpfl.core.twin import Moved, Twin, isolated
from ttpfl.errors import RatesError

log = logging.getLogger("ttpfl")


class Personalizer(Snapshots, nn.Module):
    """Adapts a model to each unlabelled batch or to the stream so far, and returns its logits.

    It works on a snapshot of the model: it never changes the model, and later changes of the model do not
    affect it. `to(device)` moves it. `state_dict()` contains only what it learned, for `load_state_dict()`
    elsewhere: the number of batches, the mean of their directions, and soft counts of their classes.

    Args:
        model: any network; it is used in evaluation mode.
        rates: the learned rates; they are copied.
        mode: "batch" adapts to each batch separately; "online" to the mean direction of all batches so far.
        decay: weight of the past in an exponential mean, in (0, 1); for online streams that change.
        logits: maps the model's output to logits, for outputs that are not a tensor.
        objective: maps logits to the unsupervised loss.
        guard: whether the guard of the rates, if they have one, bounds what a batch and a sample can do, and
            answers with the plain model where adaptation seems to harm, or if the rates were changed since.
        on_alarm: called with `health` whenever the guard stops adaptation that it had allowed.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    >>> rates = Rates.zeros(model)
    >>> rates.values += 0.1
    >>> personal = Personalizer(model, rates, mode="online")
    >>> personal(torch.randn(8, 3)).shape
    torch.Size([8, 2])
    >>> personal.health.batches
    1
    """

    def __init__(
        self,
        model: nn.Module,
        rates: Rates,
        mode: Mode = "batch",
        *,
        decay: float | None = None,
        logits: Readout | None = None,
        objective: Objective = entropy,
        guard: bool = True,
        on_alarm: Callable[[Health], object] | None = None,
    ) -> None:
        super().__init__()
        MODES.check(RatesError, mode=mode)
        if decay is not None and not (mode == "online" and 0 < decay < 1):
            raise RatesError(f"decay={decay}, mode={mode!r}: decay takes mode='online' and a value in (0, 1)")
        rates.checked().check_fits(model)
        self.mode, self.decay = mode, decay
        self._objective = objective
        # Modules with a rate of zero never move, so they need no direction.
        own_guard = rates.guard if guard else None
        known = own_guard is None or own_guard.covers(rates.values)
        moving = {name: rate for name, rate in rates.by_module().items() if rate != 0 and known}
        modules = [spec for spec in rates.modules if spec.name in moving]
        self._twin, self._shapes = Twin(model, modules, logits), {spec.name: spec.shape for spec in modules}
        self._rates = {name: rate.to(self._twin.device, copy=True) for name, rate in moving.items()}
        online = mode == "online"
        self._running = RunningDirection(online, decay)
        self._prior = RunningPrior(rates.prior, online, decay) if LABEL_PRIOR in moving else None
        self._safeguard = Safeguard(own_guard, online, known, on_alarm)
        self._health = self._safeguard.fresh_health()

    def reset(self) -> None:
        """Forget everything learned so far, for example between two clients.

        >>> model = nn.Linear(3, 2)
        >>> personal = Personalizer(model, Rates.zeros(model).with_values(torch.ones(2)), "online")
        >>> first = personal(torch.ones(4, 3))
        >>> personal.reset()
        >>> personal.health.batches
        0
        """
        self._forget()
        self._safeguard.clear()
        self._health = self._safeguard.fresh_health()

    @property
    def health(self) -> Health:
        """Label-free metrics of the last batch, and smoothed over recent ones.

        >>> model = nn.Linear(3, 2)
        >>> Personalizer(model, Rates.zeros(model)).health  # doctest: +ELLIPSIS
        Health(batches=0, fallbacks=0, last=None, smoothed=None, ...)
        """
        return self._health

    @property
    def fallbacks(self) -> int:
        """Number of batches predicted by the plain model because adaptation overflowed."""
        return self._health.fallbacks

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Adapt to this batch and return its logits; takes the model's arguments.

        An invalid batch (empty, NaN, wrong shape) raises an error and changes nothing. If adaptation
        overflows, the plain model predicts: a direction that is not finite is not learned, and a mean that
        leads to logits that are not finite is reset.

        >>> model = nn.Linear(3, 2)
        >>> Personalizer(model, Rates.zeros(model))(torch.zeros(0, 3))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        ttpfl.errors.BatchError: the batch is empty ...
        """
        with isolated():
            inputs = checked(Inputs(args, kwargs))
            if not self._rates:
                return self._predict_plainly(inputs)
            seen = self._safeguard.seen(inputs)
            if seen.nothing:
                return self._without_learning(inputs, seen)
            plain, before, direction, record = probe(self._twin, seen.inputs, self._objective)
            with torch.no_grad():
                # Outliers are not learned from, but answered, so the plain model must be able to.
                whole = plain if seen.rows is None else check_finite(self._twin.plain(inputs))
                self._health = self._safeguard.remember(seen, direction, self._health)
                if not all(all_finite(change.value) for change in direction.values()):
                    return self._fall_back(inputs)
                changes = self._health.changes
                self._health = self._safeguard.changed(seen, direction, self._running.mean, self._health)
                if self._health.changes > changes:
                    self._forget()
                self._running.add(direction)
                del direction  # make room for the adapted weights
                moved = self._moved()
                if seen.rows is None:
                    adapted = self._twin.again(inputs, moved, plain, record)
                else:
                    adapted = self._twin.plain(inputs, moved)
                if all_finite(seen.of(adapted)):
                    adapted = self._with_prior(adapted, seen)
                learned = seen.of(adapted)
                if not all_finite(adapted):
                    if not all_finite(learned):
                        self._forget()  # a mean that overflows is unusable
                    return self._fall_back(inputs)
                after, norm = (
                    float(self._objective(learned)),
                    distance(self._twin, self._running.mean, self._rates, moved),
                )
                figures = HealthFigures(float(before), after, norm, changed_share(plain, learned))
                self._health = self._health.after(figures)
                self._health = self._safeguard.weigh(plain, learned, self._health)
                return adapted if self._safeguard.adapting else whole

    def predict(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return logits with what was learned so far, without learning from this batch.

        In batch mode, that is the adaptation to the last batch; before the first batch, and while the guard
        has stopped adaptation, the plain model.

        >>> model = nn.Linear(3, 2)
        >>> personal = Personalizer(model, Rates.zeros(model).with_values(torch.ones(2)), "online")
        >>> x = torch.ones(4, 3)
        >>> torch.equal(personal(x), personal.predict(x))
        True
        """
        with isolated(), torch.no_grad():
            return self._with_the_past(checked(Inputs(args, kwargs)))

    def _moved(self) -> Moved:
        return move(self._twin, self._running.mean, self._rates)

    def _with_prior(self, adapted: Tensor, seen: Seen) -> Tensor:
        """Logits with the label prior; outliers do not count."""
        if self._prior is None:
            return adapted
        if seen.rows is None:
            return self._prior.applied(adapted, self._rates[LABEL_PRIOR])
        self._prior.applied(seen.of(adapted), self._rates[LABEL_PRIOR])
        return self._with_offset(adapted)

    def _with_offset(self, logits: Tensor) -> Tensor:
        """Logits with the label prior of the samples so far."""
        offset = self._offset()
        return logits if offset is None else logits + offset.to(logits.dtype)

    def _offset(self) -> Tensor | None:
        if self._prior is None or not self._running.batches:
            return None
        return self._prior.offset(self._rates[LABEL_PRIOR])

    def _forget(self) -> None:
        self._running.clear()
        if self._prior is not None:
            self._prior.clear()

    def _with_the_past(self, inputs: Inputs) -> Tensor:
        """Logits with what was learned so far."""
        if self._running.batches and self._safeguard.adapting:
            adapted = self._with_offset(self._twin.plain(inputs, self._moved()))
            if all_finite(adapted):
                return adapted
            self._count_fallback()
        return check_finite(self._twin.plain(inputs))

    def _without_learning(self, inputs: Inputs, seen: Seen) -> Tensor:
        """Logits of a batch of outliers."""
        with torch.no_grad():
            logits = self._with_the_past(inputs)
        self._health = self._safeguard.remember(seen, {}, self._health)
        return logits

    def _predict_plainly(self, inputs: Inputs) -> Tensor:
        with torch.no_grad():
            plain = check_finite(self._twin.plain(inputs))
            value = float(self._objective(plain))
        self._health = self._health.after(HealthFigures(value, value, 0.0, 0.0))
        if self._safeguard.refused:
            self._health = self._safeguard.overflowed(len(plain), self._health)
        return plain

    def _fall_back(self, inputs: Inputs) -> Tensor:
        self._count_fallback()
        plain = self._predict_plainly(inputs)
        self._health = self._safeguard.overflowed(len(plain), self._health)
        return plain

    def _count_fallback(self) -> None:
        if not self.fallbacks:
            log.warning(
                "adaptation led to logits that are not finite: predicting with the plain model; "
                "see Personalizer.fallbacks (shown once)"
            )
        self._health = replace(self._health, fallbacks=self.fallbacks + 1)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._twin.apply(fn)
        with torch.inference_mode(False):
            self._rates = {name: rate.to(self._twin.device) for name, rate in self._rates.items()}
            for name, change in self._running.mean.items():
                dtype = mean_dtype(self._twin, name)
                self._running.mean[name] = change._replace(value=change.value.to(self._twin.device, dtype))
            if self._prior is not None:
                self._prior.counts = self._prior.counts.to(self._twin.device)
        return self

    def _state(self) -> RunningState:
        return RunningState(self._twin, self._shapes, self._running, self._prior, self._safeguard.watch)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        destination.update((f"{prefix}{key}", tensor) for key, tensor in self._state().saved().items())

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Tensor], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Load a `state_dict()`; an invalid one raises an error and changes nothing."""
        own = {
            key.removeprefix(prefix): tensor for key, tensor in state_dict.items() if key.startswith(prefix)
        }
        self._state().load(own)
        self._safeguard.forget_sizes()
        self._health = self._safeguard.fresh_health()
