"""Networks to start with. Any other `nn.Module` works as well."""

from ttpfl.models.build import build
from ttpfl.models.files import load_model, save_model
from ttpfl.models.mlp import mlp
from ttpfl.models.resnet import resnet18, resnet50
from ttpfl.models.sequence_transformer import sequence_transformer
from ttpfl.models.shallow_cnn import shallow_cnn
from ttpfl.models.signal_cnn import beat_cnn, signal_cnn
from ttpfl.models.signature import Signature

__all__ = [
    "Signature",
    "beat_cnn",
    "build",
    "load_model",
    "mlp",
    "resnet18",
    "resnet50",
    "save_model",
    "sequence_transformer",
    "shallow_cnn",
    "signal_cnn",
]
