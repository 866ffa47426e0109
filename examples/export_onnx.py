"""Export a personalised snapshot to ONNX and run it with ONNX Runtime.

If a site must classify single images quickly, or has no PyTorch, adapt to some of its images once and
deploy the result without further adaptation. `adapted_model` returns a plain model, which any tool accepts.
Needs the extra `examples`.
"""

import logging
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import torch
import typer
from torch import Tensor, nn

from ttpfl import Personalizer, Rates, learn_rates
from ttpfl.data import federate
from ttpfl.federation import TrainSettings, train
from ttpfl.models import shallow_cnn


def personalised(model: nn.Module, rates: Rates, images: Tensor) -> nn.Module:
    """A copy of the model, adapted once to these images."""
    personal = Personalizer(model, rates, mode="online")
    for batch in images.split(20):
        personal(batch)
    return personal.adapted_model().eval()


def run_by_onnx(model: nn.Module, images: Tensor) -> Tensor:
    """The model's logits computed by ONNX Runtime, with a dynamic batch size."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        path = Path(folder, "personal.onnx")
        shapes = ({0: torch.export.Dim("batch")},)
        torch.onnx.export(
            model, (images[:2],), path, dynamic_shapes=shapes, external_data=False, verbose=False
        )
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (logits,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    return torch.from_numpy(logits)


def main(rounds: int = 10, clients: int = 24, samples: int = 100) -> None:
    """Adapt to the first half of each new client's images and classify the second half with the snapshot."""
    torch.manual_seed(0)
    choices = {"source_clients": clients, "target_clients": clients // 3, "samples": samples}
    population, labels, _ = federate("digits", shift="hybrid", **choices)
    begin = shallow_cnn(num_classes=10, image_size=28)
    model, _ = train(begin, population.source, TrainSettings(rounds=rounds, workers=0))
    rates = learn_rates(model, population.source)

    accuracies = []
    for client in population.target:
        first, second = torch.cat(list(client.stream(batch_size=20))).contiguous().chunk(2)
        snapshot = personalised(model, rates, first)
        with torch.no_grad():
            predictions = torch.stack([model(second), snapshot(second)]).argmax(2)
        accuracies.append((predictions == labels[client.id][len(first) :]).float().mean(1).numpy())
    before, after = np.mean(accuracies, axis=0)
    print(f"accuracy at {len(accuracies)} new clients, second half of their images")
    print(f"  no adaptation:              {before:.1%}")
    print(f"  snapshot of the first half: {after:.1%}")
    with torch.no_grad():
        difference = (run_by_onnx(snapshot, second) - snapshot(second)).abs().max()
    print(f"the last client's snapshot in ONNX Runtime: logits differ by at most {difference:.1e}")


if __name__ == "__main__":
    typer.run(main)
