"""What takes longer: whole networks, long streams, and the benchmark as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import ttpfl
from tests.helpers.networks import CLASSES, NETWORKS, batches, image, make, some_rates
from tests.helpers.reference import Reference

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]


def run(*command: str) -> str:
    result = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_the_papers_resnets_against_the_reference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    factory = getattr(ttpfl.models, name)
    monkeypatch.setitem(NETWORKS, name, (lambda: factory(CLASSES), image(32)))
    model = make(name).double()
    with torch.no_grad():
        model.fc.weight.mul_(0.01)  # a fresh deep network is far too sure of itself
        for name_, layer in model.named_modules():
            if name_.endswith("bn3"):  # and the signal grows in every block of ResNet-50
                layer.weight.mul_(0.3)
    data = [(x.double(), y) for x, y in batches(name, count=2)]
    rates = some_rates(model, scale=1e-3)
    rates.values = rates.values.double()
    start = dict(zip(rates.names, rates.values.tolist(), strict=True))
    reference = Reference(model)
    for mode in ("batch", "online"):
        expected = reference.refine(start, data, lr=0.1, online=mode == "online")
        moved = ttpfl.refine_rates(model, rates, data, lr=0.1, mode=mode).values - rates.values
        change = torch.tensor([expected[n] - start[n] for n in rates.names], dtype=torch.float64)
        assert (moved - change).abs().max() < 1e-8 * change.abs().max()
        personal = ttpfl.Personalizer(model, rates, mode)
        answers = reference.predict([x for x, _ in data], start, online=mode == "online")
        for (x, _), logits in zip(data, answers, strict=True):
            assert (personal(x) - logits).abs().max() < 1e-8 * logits.abs().max()


def test_memory_does_not_grow_with_the_stream() -> None:
    """The benchmark's soak, shortened; it fails on a drift of one per cent."""
    assert "drift" in run("benchmarks/core.py", "--soak", "2000")


def test_the_benchmark_agrees_with_the_transcription() -> None:
    """It compares results before it measures; a few repetitions show that it works."""
    output = run("benchmarks/core.py", "--repetitions", "1")
    assert output.count("difference from the transcription") == 2
    assert output.count("the model's size") == 2
