"""A personalised snapshot as a plain network: exported to ONNX, and run by ONNX Runtime.

Where a site has to answer single pictures quickly, or has no PyTorch, one can adapt to some of its pictures
and then run the result as it is, without adapting further. `adapted_state_dict` gives adapted weights under
the model's own names, so that everything that takes the model takes them. Needs the extra `examples`.
"""

import copy
import tempfile
import warnings
from pathlib import Path

import onnxruntime
import torch
import typer
from torch import Tensor, nn

from ttpfl import Personalizer
from ttpfl.data import federate
from ttpfl.federation import LearnSettings, TrainSettings, learn, train
from ttpfl.models import shallow_cnn


def exported(model: nn.Module, example: Tensor, folder: str) -> onnxruntime.InferenceSession:
    """The model as an ONNX file that takes any number of pictures, opened by ONNX Runtime."""
    path = Path(folder, "personal.onnx")
    with warnings.catch_warnings(action="ignore"):  # the exporter's, about itself
        torch.onnx.export(
            model, (example,), path, input_names=["x"], output_names=["logits"], verbose=False,
            dynamic_shapes=({0: torch.export.Dim("batch")},), external_data=False,
        )  # fmt: skip
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def main(rounds: int = 12, rate_rounds: int = 20, samples: int = 100) -> None:
    """Adapt to the first half of each new client's pictures, export, and answer the second half."""
    torch.manual_seed(0)
    clients, labels, _ = federate("digits", shift="hybrid", samples=samples)
    begin = shallow_cnn(num_classes=10, image_size=28)
    model, _ = train(begin, clients.source, TrainSettings(rounds=rounds, workers=0))
    rates, _ = learn(model, clients.source, LearnSettings(rounds=rate_rounds, mode="online", workers=0))

    plain, personalised, difference = [], [], 0.0
    for client in clients.target[:3]:
        images = torch.cat(list(client.stream(batch_size=20))).contiguous()
        half = len(images) // 2
        personal = Personalizer(model, rates, mode="online")
        for batch in images[:half].split(20):
            personal(batch)
        snapshot = copy.deepcopy(model)
        snapshot.load_state_dict(personal.adapted_state_dict())

        later, answers = images[half:], labels[client.id][half:]
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            session = exported(snapshot, later[:2], folder)
            logits = torch.from_numpy(session.run(None, {"x": later.numpy()})[0])
            difference = max(difference, float((logits - snapshot(later)).abs().max()))
            plain.append(float((model(later).argmax(1) == answers).float().mean()))
        personalised.append(float((logits.argmax(1) == answers).float().mean()))

    print(f"accuracy at {len(plain)} new clients, second half of their pictures")
    print(f"  no adaptation:                            {sum(plain) / len(plain):.1%}")
    print(f"  snapshot of the first half, ONNX Runtime: {sum(personalised) / len(plain):.1%}")
    print(f"largest difference of the logits to PyTorch's: {difference:.1e}")


if __name__ == "__main__":
    typer.run(main)
