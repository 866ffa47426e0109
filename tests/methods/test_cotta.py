"""CoTTA against a plain re-statement, and its random parts by what they must do."""

import copy
from operator import itemgetter

import pytest
import torch
from torch import Tensor, nn

from tests.helpers import networks
from ttpfl import methods
from ttpfl.methods import Adapter, SourceInfo, cotta


def adapter(model: nn.Module, **config: object) -> Adapter:
    return methods.make("cotta", **config).adapter(model, SourceInfo())


def by_batch_statistics(model: nn.Module) -> nn.Module:
    """A copy whose BatchNorm layers normalise every batch by itself."""
    model = copy.deepcopy(model)
    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.running_mean = layer.running_var = None
            layer.track_running_stats = False
    return model


@pytest.mark.parametrize("restore", [0.0, 1.0])
@pytest.mark.parametrize("name", ["cnn18", "groupnorm"])
def test_cotta(name: str, restore: float, monkeypatch: pytest.MonkeyPatch) -> None:
    scales = iter([0.9, 1.1] * 20)
    monkeypatch.setattr(cotta, "strongly_augmented", lambda images, generator: next(scales) * images)
    # In double precision, since Adam makes steps of any gradient, even of one that is rounding alone.
    model = networks.make(name).double()
    batches = [x.double() for x, _ in networks.batches(name, count=4, size=6)]
    student, teacher = by_batch_statistics(model), by_batch_statistics(model)
    confidences = [float(teacher(x).detach().softmax(1).amax(1).mean()) for x in batches]
    batches = [x for _, x in sorted(zip(confidences, batches, strict=True), key=itemgetter(0))]
    limit = sum(sorted(confidences)[1:3]) / 2  # two batches are augmented, and then two are not
    optimizer = torch.optim.Adam(student.parameters(), 0.01)
    ours = adapter(model, lr=0.01, follow=0.3, restore=restore, confidence=limit, augmentations=2)
    for number, x in enumerate(batches):
        with torch.no_grad():
            views = [0.9 * x, 1.1 * x] if number < 2 else [x]
            expected = sum(teacher(view) for view in views) / len(views)
        loss = nn.functional.cross_entropy(student(x), expected.softmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, quick in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.mul_(0.7).add_(0.3 * quick)
            if restore:
                for quick, initial in zip(student.parameters(), model.parameters(), strict=True):
                    quick.copy_(initial)
        torch.testing.assert_close(ours(x), expected, rtol=1e-4, atol=1e-5)
    assert float((expected - by_batch_statistics(model)(batches[-1])).detach().abs().max()) > 1e-3


def test_a_share_of_the_values_is_restored() -> None:
    model, [(x, _)] = networks.make("cnn18"), networks.batches("cnn18", count=1)
    ours = adapter(model, lr=0.01, restore=0.3, augmentations=1)
    ours(x)
    pairs = zip(ours.model.parameters(), model.parameters(), strict=True)
    same = torch.cat([(mine == initial).flatten() for mine, initial in pairs])
    deviation = (0.3 * 0.7 / len(same)) ** 0.5
    assert abs(float(same.float().mean()) - 0.3) < 4 * deviation + 0.01  # some have no gradient


def test_inputs_that_are_not_images_are_not_augmented(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(images: Tensor, generator: torch.Generator) -> Tensor:
        raise AssertionError("augmented")

    monkeypatch.setattr(cotta, "strongly_augmented", refuse)
    model, [(x, _)] = networks.make("mlp"), networks.batches("mlp", count=1)
    torch.testing.assert_close(adapter(model)(x), by_batch_statistics(model)(x).detach())
    model, [(x, _)] = networks.make("cnn18"), networks.batches("cnn18", count=1)
    with pytest.raises(AssertionError, match="augmented"):
        adapter(model)(x)


def test_seeds_differ() -> None:
    model, batches = networks.make("cnn18"), [x for x, _ in networks.batches("cnn18", count=2)]
    first, same, other = (adapter(model, augmentations=2, seed=seed) for seed in (0, 0, 5))
    for x in batches:
        expected = first(x)
        assert torch.equal(same(x), expected)
        assert not torch.equal(other(x), expected)
