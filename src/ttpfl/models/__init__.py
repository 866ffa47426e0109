"""Networks to start with. Any other `nn.Module` works as well."""

from ttpfl.models.resnet import resnet18, resnet50
from ttpfl.models.shallow_cnn import shallow_cnn

__all__ = ["resnet18", "resnet50", "shallow_cnn"]
