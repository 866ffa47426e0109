"""What came of `ttpfl train` and `ttpfl learn`, in words."""

from pathlib import Path
from typing import Any

from ttpfl.cli.output import answer
from ttpfl.federation.accountant import in_words


def report(path: Path, history: list[dict[str, Any]], as_json: bool = False) -> None:
    """Say what was written."""
    words = f"{path} written after {len(history)} rounds: {figures(history[-1])}"
    answer({"result": path, "rounds": len(history), "last_round": history[-1]}, words, as_json=as_json)


def figures(record: dict[str, Any]) -> str:
    """A round in words.

    >>> figures({"round": 3, "validation_loss": 0.51234, "failed": []})
    'validation loss 0.5123'
    >>> figures({"round": 3, "epsilon": 2.0, "delta": 1e-5})
    'epsilon 2 at delta 1e-05, for the rates alone: the model counts as public'
    """
    parts = [
        f"{name.replace('_', ' ')} {value:.4g}"
        for name, value in record.items()
        if name.endswith(("_loss", "_accuracy"))
    ]
    if privacy := in_words(record):
        bounded = record["epsilon"] is not None
        parts.append(f"{privacy}, for the rates alone: the model counts as public" if bounded else privacy)
    return ", ".join(parts)
