"""Networks to start with. Any other `nn.Module` works as well."""

from ttpfl.models.build import build
from ttpfl.models.files import load_model, save_model
from ttpfl.models.resnet import resnet18, resnet50
from ttpfl.models.shallow_cnn import shallow_cnn
from ttpfl.models.signature import Signature

__all__ = ["Signature", "build", "load_model", "resnet18", "resnet50", "save_model", "shallow_cnn"]
