"""What a personalizer learned of a stream, as tensors to save and to load."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ttpfl.core.direction import Change, Direction
from ttpfl.core.gain import Past
from ttpfl.core.label_prior import LABEL_PRIOR
from ttpfl.core.running import RunningDirection
from ttpfl.core.running_prior import RunningPrior
from ttpfl.core.twin import Twin
from ttpfl.core.watch import COUNTS, Watch
from ttpfl.errors import RatesError

EVIDENCE = "evidence"
SHORTEST = COUNTS + len(Past().numbers)


class RunningState(NamedTuple):
    """The parts of a personalizer that change with its stream."""

    twin: Twin
    shapes: Mapping[str, tuple[int, ...]]
    """Of every module that moves."""
    running: RunningDirection
    prior: RunningPrior | None
    watch: Watch | None

    def saved(self) -> dict[str, Tensor]:
        """The number of batches, their mean directions and soft counts, and the evidence of the guard."""
        state = {"count": torch.tensor(self.running.batches)}
        for name, change in self.running.mean.items():
            state[self._mean_key(name)] = change.whole().clone()
        if self.prior is not None and self.running.batches:
            state[self._mean_key(LABEL_PRIOR)] = self.prior.counts.clone()
        return state if self.watch is None else {**state, EVIDENCE: self.watch.numbers.clone()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `saved` returned; if it is invalid, raise an error and change nothing."""
        means: dict[str, Tensor] = {}
        for key, tensor in state.items():
            kind, _, name = key.partition(".")
            if kind in ("mean", "log_mean", "counts"):
                means[name] = tensor
                if name in self.shapes and key != self._mean_key(name):
                    raise RatesError(f"the state is for other rates: they move {name!r} in another domain")
        stored = state.get("count", torch.tensor(-1))
        count = int(stored) if stored.numel() == 1 else -1
        if count < 0 or (count > 0) != bool(means):
            raise RatesError("this is not the state of a personalizer: 'count' or the means are missing")
        if means and means.keys() != self.shapes.keys():
            name = min(means.keys() ^ self.shapes.keys())
            raise RatesError(f"the state is for other rates: module {name!r} is in only one of them")
        counts, mean = means.pop(LABEL_PRIOR, None), Direction()
        for name, tensor in means.items():
            _check(f"mean direction of {name!r}", tensor, self.shapes[name])
            value = self._copied(tensor, mean_dtype(self.twin, name))
            mean[name] = Change(value, None, self.shapes[name])
        if counts is not None:
            _check("soft counts", counts, self.shapes[LABEL_PRIOR])
            if (counts < 0).any():
                raise RatesError(f"the soft counts have a negative number, {float(counts.min()):g}")
        evidence = state.get(EVIDENCE)
        if evidence is not None:  # the number of classes is only known after the first batch
            _check(EVIDENCE, evidence, (max(SHORTEST, evidence.numel() // 2 * 2),))
            if evidence[COUNTS] < 0:
                raise RatesError(f"the {EVIDENCE} is of {float(evidence[COUNTS]):g} samples")
        if self.watch is not None:
            self.watch.clear()
            self.watch.numbers = self.watch.numbers if evidence is None else evidence
        self.running.batches = count
        if self.prior is not None:
            self.prior.clear()
            if counts is not None:
                self.prior.counts = self._copied(counts, torch.float64)
        self.running.mean = {name: mean[name] for name in self.shapes if name in mean}

    def _copied(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        with torch.inference_mode(False):
            return tensor.detach().to(self.twin.device, dtype, copy=True)

    def _mean_key(self, name: str) -> str:
        """Key of a mean direction, which has another meaning in the log domain and for the label prior."""
        if name == LABEL_PRIOR:
            return f"counts.{name}"
        return f"{'log_mean' if self.twin.specs[name].log_domain else 'mean'}.{name}"


def mean_dtype(twin: Twin, name: str) -> torch.dtype:
    """Type of a mean direction: float32 or better, whatever the model is cast to."""
    return torch.promote_types(twin.tensors[name].dtype, torch.float32)


def _check(what: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape or not torch.isfinite(tensor).all():
        raise RatesError(f"the {what} has shape {tuple(tensor.shape)} (expected {shape}) or is not finite")
