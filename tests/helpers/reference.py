"""The algorithm in float64, slow and obvious: own BatchNorm from plain operations, autograd through
everything, finite differences for the rates' gradient. Every fast path is compared with this."""

import copy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

State = dict[str, Tensor]


class PlainBatchNorm(nn.Module):
    """Evaluation-mode BatchNorm whose statistics are ordinary parameters."""

    def __init__(self, layer: _BatchNorm) -> None:
        super().__init__()
        self.weight = nn.Parameter(layer.weight.detach().clone())
        self.bias = nn.Parameter(layer.bias.detach().clone())
        self.running_mean = nn.Parameter(layer.running_mean.detach().clone())
        self.running_var = nn.Parameter(layer.running_var.detach().clone())
        self.eps = layer.eps
        self.seen: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        flat = x.movedim(1, -1)  # channels last, so that everything broadcasts
        self.seen = flat.detach().reshape(-1, flat.shape[-1])
        y = (flat - self.running_mean) / (self.running_var + self.eps).sqrt()
        return (y * self.weight + self.bias).movedim(-1, 1)


class Reference:
    """A model in float64; every movable tensor is a parameter."""

    def __init__(self, model: nn.Module) -> None:
        self.model = copy.deepcopy(model).double().eval()
        for path, layer in list(self.model.named_modules()):
            if isinstance(layer, _BatchNorm):
                if not path:
                    raise ValueError("wrap the BatchNorm")
                parent, _, name = path.rpartition(".")
                setattr(self.model.get_submodule(parent), name, PlainBatchNorm(layer))
        self.start: State = {n: p.detach().clone() for n, p in self.model.named_parameters()}

    def logits(self, x: Tensor, state: State) -> Tensor:
        self.model.load_state_dict(state, strict=False)
        return self.model(x.double())

    def direction(self, x: Tensor) -> State:
        logits = self.logits(x, self.start)
        log_p = logits - logits.logsumexp(1, keepdim=True)
        entropy = -(log_p.exp() * log_p).sum() / len(x)
        names, parameters = zip(*self.model.named_parameters(), strict=True)
        gradients = torch.autograd.grad(entropy, parameters, allow_unused=True)
        h = {
            name: torch.zeros_like(parameter) if gradient is None else -gradient
            for name, parameter, gradient in zip(names, parameters, gradients, strict=True)
        }
        for path, layer in self.model.named_modules():
            if isinstance(layer, PlainBatchNorm):
                rows = layer.seen
                mean = rows.sum(0) / len(rows)
                variance = ((rows - mean) ** 2).sum(0) / (len(rows) - 1)
                h[f"{path}.running_mean"] = mean - self.start[f"{path}.running_mean"]
                h[f"{path}.running_var"] = variance - self.start[f"{path}.running_var"]
        return h

    def adapted(self, h: State, rates: dict[str, float]) -> State:
        state = {}
        for name, tensor in self.start.items():
            state[name] = tensor + rates[name] * h[name]
            if name.endswith("running_var"):
                state[name] = torch.where(state[name] < 0, 0.0, state[name])
        return state

    def loss(self, x: Tensor, y: Tensor, h: State, rates: dict[str, float]) -> Tensor:
        logits = self.logits(x, self.adapted(h, rates))
        log_p = logits - logits.logsumexp(1, keepdim=True)
        return -log_p[torch.arange(len(y)), y].sum() / len(y)

    def slope(self, x: Tensor, y: Tensor, h: State, rates: dict[str, float]) -> dict[str, float]:
        """<h, gradient in w>, not yet divided by the square root of the size."""
        names, parameters = zip(*self.model.named_parameters(), strict=True)
        gradients = torch.autograd.grad(self.loss(x, y, h, rates), parameters, allow_unused=True)
        return {
            name: 0.0 if gradient is None else (h[name] * gradient).sum().item()
            for name, gradient in zip(names, gradients, strict=True)
        }

    def slope_by_differences(
        self, x: Tensor, y: Tensor, h: State, rates: dict[str, float], name: str, step: float = 1e-8
    ) -> float:
        up, down = rates | {name: rates[name] + step}, rates | {name: rates[name] - step}
        with torch.no_grad():
            return ((self.loss(x, y, h, up) - self.loss(x, y, h, down)) / (2 * step)).item()

    def refine(
        self, rates: dict[str, float], batches: list[tuple[Tensor, Tensor]], lr: float, online: bool = False
    ) -> dict[str, float]:
        rates = dict(rates)
        seen: list[State] = []
        for x, y in batches:
            seen.append(self.direction(x))
            used = seen if online else seen[-1:]
            h = {name: torch.stack([d[name] for d in used]).mean(0) for name in seen[-1]}
            slope = self.slope(x, y, h, rates)
            rates = {n: rates[n] - lr * slope[n] / self.start[n].numel() ** 0.5 for n in rates}
        return rates

    def predict(self, batches: list[Tensor], rates: dict[str, float], online: bool = False) -> list[Tensor]:
        seen: list[State] = []
        answers = []
        for x in batches:
            seen.append(self.direction(x))
            used = seen if online else seen[-1:]
            h = {name: torch.stack([d[name] for d in used]).mean(0) for name in seen[-1]}
            with torch.no_grad():
                answers.append(self.logits(x, self.adapted(h, rates)).clone())
        return answers
