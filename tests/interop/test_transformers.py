"""Networks of Hugging Face Transformers, randomly initialised from a small configuration."""

from pathlib import Path

import pytest
import torch

from tests.helpers.interop import CLASSES, Batch, check_all, needs

transformers = needs("transformers")
SMALL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "num_labels": CLASSES,
}  # fmt: skip


def images(count: int) -> Batch:
    return {"pixel_values": torch.randn(count, 3, 16, 16)}


def texts(count: int) -> Batch:
    """Of different lengths, padded at the end."""
    mask = (torch.arange(12) < torch.randint(4, 13, (count, 1))).long()
    return {"input_ids": torch.randint(5, 50, (count, 12)) * mask, "attention_mask": mask}


def test_vit(tmp_path: Path) -> None:
    config = transformers.ViTConfig(image_size=16, patch_size=8, **SMALL)
    check_all(transformers.ViTForImageClassification(config), images, tmp_path)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_bert(attention: str, tmp_path: Path) -> None:
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=16, **SMALL)
    config._attn_implementation = attention
    check_all(transformers.BertForSequenceClassification(config), texts, tmp_path)
