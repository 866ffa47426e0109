"""RoTTA and its parts, each against a plain re-statement."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.helpers import networks
from ttpfl import methods
from ttpfl.methods import SourceInfo
from ttpfl.methods.rotta import method as rotta_method
from ttpfl.methods.rotta.balanced_memory import BalancedMemory
from ttpfl.methods.strong_augmentation import strongly_augmented


class SlowMemory:
    """One list per class, and ages that are counted up, as in the paper's algorithm."""

    def __init__(self, capacity: int, classes: int) -> None:
        self.capacity, self.classes = capacity, classes
        self.lists: list[list[dict[str, Any]]] = [[] for _ in range(classes)]

    def score(self, item: dict[str, Any]) -> float:
        timeliness = 1 / (1 + math.exp(-item["age"] / self.capacity))
        return timeliness + item["uncertainty"] / math.log(self.classes)

    def add(self, sample: Any, label: int, uncertainty: float) -> None:
        new = {"sample": sample, "age": 0, "uncertainty": uncertainty}
        sizes = [len(items) for items in self.lists]
        if sizes[label] < self.capacity / self.classes and sum(sizes) < self.capacity:
            self.lists[label].append(new)
        else:
            if sizes[label] < self.capacity / self.classes:
                candidates = [k for k in range(self.classes) if sizes[k] == max(sizes)]
            else:
                candidates = [label]
            worst = max((self.score(item), k, i) for k in candidates for i, item in enumerate(self.lists[k]))
            if worst[0] > self.score(new):
                self.lists[worst[1]].pop(worst[2])
                self.lists[label].append(new)
        for items in self.lists:
            for item in items:
                item["age"] += 1

    def content(self) -> dict[Any, float]:
        return {item["sample"]: item["age"] / self.capacity for items in self.lists for item in items}


@pytest.mark.parametrize(("capacity", "classes"), [(10, 3), (4, 6), (16, 2)])
def test_memory(capacity: int, classes: int) -> None:
    ours, theirs = BalancedMemory(capacity, classes), SlowMemory(capacity, classes)
    generator = torch.Generator().manual_seed(3)
    for index in range(100):
        label = min(int(torch.randint(classes * 2, (), generator=generator)), classes - 1)  # unbalanced
        uncertainty = float(torch.rand((), generator=generator)) * math.log(classes)
        ours.add(index, label, uncertainty)
        theirs.add(index, label, uncertainty)
        content = {item.sample: age for item, age in zip(ours.items, ours.ages(), strict=True)}
        assert content == theirs.content()
    assert len(ours.items) <= capacity


class SlowRobustBN(nn.Module):
    def __init__(self, layer: nn.Module, rate: float) -> None:
        super().__init__()
        self.layer, self.rate, self.updating = layer, rate, False

    def forward(self, x: Tensor) -> Tensor:
        dims = [d for d in range(x.ndim) if d != 1]
        mean, variance = self.layer.running_mean, self.layer.running_var
        if self.updating:
            mean = (1 - self.rate) * mean + self.rate * x.mean(dims)
            variance = (1 - self.rate) * variance + self.rate * x.var(dims, unbiased=False)
            self.layer.running_mean, self.layer.running_var = mean.detach(), variance.detach()
        shape = [1, -1] + [1] * (x.ndim - 2)
        x = (x - mean.view(shape)) / (variance.view(shape) + self.layer.eps).sqrt()
        return x * self.layer.weight.view(shape) + self.layer.bias.view(shape)


def robust(model: nn.Module, rate: float) -> nn.Module:
    model = copy.deepcopy(model).requires_grad_(False)
    for path, layer in list(model.named_modules()):
        if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, SlowRobustBN(layer, rate))
    return model


def updating(model: nn.Module, on: bool) -> nn.Module:
    for layer in model.modules():
        if isinstance(layer, SlowRobustBN):
            layer.updating = on
    return model


@pytest.mark.parametrize("name", ["cnn18", "groupnorm"])
def test_rotta(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Replace the random augmentation by a deterministic one.
    monkeypatch.setattr(rotta_method, "strongly_augmented", lambda images, generator: 1.1 * images.flip(3))
    model, batches = networks.make(name), [x for x, _ in networks.batches(name, count=6, size=5)]
    teacher, student = robust(model, 0.3), robust(model, 0.3)
    norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm)
    quick = [p.requires_grad_() for m in student.modules() if isinstance(m, norms) for p in m.parameters()]
    slow = [p for m in teacher.modules() if isinstance(m, norms) for p in m.parameters()]
    optimizer = torch.optim.Adam(quick, 0.02)
    memory, seen, theirs = SlowMemory(8, networks.CLASSES), 0, []
    samples: list[Tensor] = []
    for x in batches:
        theirs.append(updating(teacher, False)(x))
        p = theirs[-1].softmax(1)
        for sample, prediction in zip(x, p, strict=True):
            memory.add(len(samples), int(prediction.argmax()), float(-(prediction * prediction.log()).sum()))
            samples.append(sample)
            seen += 1
            if seen % 8 == 0:
                content = memory.content()
                kept = torch.stack([samples[index] for index in content])
                target = updating(teacher, True)(kept).softmax(1)
                log_p = updating(student, True)(1.1 * kept.flip(3)).log_softmax(1)
                loss = 0
                for age, t, q in zip(content.values(), target, log_p, strict=True):
                    loss = loss - math.exp(-age) / (1 + math.exp(-age)) * (t * q).sum() / len(content)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                for a, b in zip(slow, quick, strict=True):
                    a.data = 0.8 * a.data + 0.2 * b.data
    method = methods.make("rotta", lr=0.02, rate=0.3, follow=0.2, capacity=8)
    adapter = method.adapter(model, SourceInfo())
    for x, logits in zip(batches, theirs, strict=True):
        torch.testing.assert_close(adapter(x), logits, rtol=1e-4, atol=1e-4 * float(logits.abs().max()))
    assert float((model(batches[-1]) - theirs[-1]).detach().abs().max()) > 1e-3


def test_strong_augmentation() -> None:
    images = networks.batches("cnn18", count=1)[0][0]

    def augmented(seed: int) -> Tensor:
        return strongly_augmented(images, torch.Generator().manual_seed(seed))

    assert torch.equal(augmented(0), augmented(0))
    assert not torch.equal(augmented(0), augmented(1))
    assert augmented(0).amin() >= images.amin() - 1e-5
    assert augmented(0).amax() <= images.amax() + 1e-5
    features = torch.randn(3, 4)
    assert strongly_augmented(features, torch.Generator()) is features
    flat = torch.zeros(2, 1, 8, 8)
    assert torch.isfinite(strongly_augmented(flat, torch.Generator())).all()


def test_strong_augmentation_changes_colours() -> None:
    """Red stays red, but not always the same, and towards green as often as towards blue."""
    red = torch.tensor([0.9, 0.2, 0.2]).view(3, 1, 1).expand(200, 3, 8, 8)
    images = torch.cat([red, torch.zeros(1, 3, 8, 8), torch.ones(1, 3, 8, 8)])  # the whole range
    changed = strongly_augmented(images, torch.Generator().manual_seed(0))[:200].mean((2, 3))
    assert (changed.argmax(1) == 0).all()
    assert 60 < int((changed[:, 1] > changed[:, 2]).sum()) < 140


def test_strong_augmentation_keeps_what_is_seen() -> None:
    ramp = torch.linspace(0, 1, 24)
    images = (ramp[:, None] * torch.ones(24)).expand(40, 3, 24, 24).clone()  # bright below
    changed = strongly_augmented(images, torch.Generator().manual_seed(0))
    assert (changed[:, :, 18:].mean((1, 2, 3)) > changed[:, :, :6].mean((1, 2, 3)) + 0.2).all()
    left = images.transpose(2, 3)  # bright at the right: half of them are flipped
    changed = strongly_augmented(left, torch.Generator().manual_seed(0))
    right = changed[..., 18:].mean((1, 2, 3)) > changed[..., :6].mean((1, 2, 3))
    assert 10 < int(right.sum()) < 30
