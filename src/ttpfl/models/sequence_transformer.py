"""A small transformer for sequences: signals that are cut into short pieces."""

import torch
from torch import Tensor, nn

from ttpfl.errors import ModelError

WIDTH, HEADS, BLOCKS = 64, 4, 2
PIECES = 32  # most pieces into which a sequence is cut


class SequenceTransformer(nn.Module):
    """Pieces of equal length, two attention blocks, the mean over pieces, and a linear classifier."""

    def __init__(self, num_classes: int, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        if len(input_shape) != 2:
            raise ModelError(
                f"samples have shape {tuple(input_shape)}: the transformer needs (channels, time)"
            )
        channels, time = input_shape
        length = -(-time // PIECES)
        self.pieces = nn.Conv1d(channels, WIDTH, length, length)
        self.positions = nn.Parameter(torch.randn(1, time // length, WIDTH) * 0.02)
        self.blocks = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, 0.0, batch_first=True, norm_first=True)
                for _ in range(BLOCKS)
            )
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of sequences."""
        x = self.pieces(x).transpose(1, 2) + self.positions
        logits: Tensor = self.head(self.norm(self.blocks(x)).mean(1))
        return logits


def sequence_transformer(num_classes: int, input_shape: tuple[int, ...] = (1, 128)) -> nn.Module:
    """A transformer for sequences (channels, time) of one length, with new weights.

    >>> sequence_transformer(6, (3, 128))(torch.zeros(2, 3, 128)).shape
    torch.Size([2, 6])
    """
    return SequenceTransformer(num_classes, input_shape)
