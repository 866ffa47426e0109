"""RDumb against EATA, whose steps it takes, and against a fresh start, which it makes."""

import pytest
import torch
from torch import Tensor, nn

from tests.helpers import networks
from ttpfl import methods
from ttpfl.errors import BatchError
from ttpfl.methods import Adapter, SourceInfo

STEPS = {"lr": 0.05, "margin": 0.9, "similarity": 0.9}


def model_and_stream(network: str) -> tuple[nn.Module, list[Tensor]]:
    """Scaled, so that some predictions are confident; batches that differ in size."""
    model = networks.make(network)
    head = [layer for layer in model.modules() if isinstance(layer, nn.Linear)][-1]
    with torch.no_grad():
        head.weight *= 4
    return model, [networks.batches(network, 1, size, seed)[0][0] for seed, size in enumerate((8, 5, 8, 8))]


def adapter(name: str, model: nn.Module, **config: float) -> Adapter:
    return methods.make(name, **STEPS, **config).adapter(model, SourceInfo())


def equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("network", ["cnn18", "groupnorm", "vit"])
def test_before_the_first_reset_it_is_eata_and_after_it_starts_anew(network: str, kind: str) -> None:
    model, stream = model_and_stream(network)
    eta = adapter("eata", model, fisher=0.0, optimizer=kind)
    expected = [eta(x) for x in stream]
    assert any(not torch.equal(eta(x), y) for x, y in zip(stream, expected, strict=True)), (
        "nothing is learned"
    )
    rdumb = adapter("rdumb", model, interval=len(stream), optimizer=kind)
    for _ in range(3):
        assert equal([rdumb(x) for x in stream], expected)
    never = adapter("rdumb", model, optimizer=kind)
    assert equal([never(x) for x in stream], expected)
    assert not equal([never(x) for x in stream], expected)


def test_an_interval_of_one_predicts_every_batch_by_its_own_statistics() -> None:
    model, stream = model_and_stream("cnn18")
    rdumb = adapter("rdumb", model, interval=1)
    assert equal([rdumb(x) for x in stream], [adapter("eata", model, fisher=0.0)(x) for x in stream])


def test_batches_that_fail_and_resets_do_not_count() -> None:
    model, stream = model_and_stream("cnn18")
    rdumb = adapter("rdumb", model, interval=3)
    expected = [rdumb(x) for x in stream]
    rdumb.reset()
    rdumb(stream[3])
    rdumb.reset()
    found = []
    for x in stream:
        with pytest.raises(BatchError):
            rdumb(x * float("nan"))
        found.append(rdumb(x))
    assert equal(found, expected)
    assert torch.equal(expected[3], adapter("rdumb", model)(stream[3])), "there was no reset"


def test_no_source_client_is_asked() -> None:
    assert not methods.make("rdumb").needs_source
