"""What came of `ttpfl train` and `ttpfl learn`, in words."""

from pathlib import Path
from typing import Any

from ttpfl.cli.output import answer
from ttpfl.federation.accountant import in_words


def report(
    path: Path, history: list[dict[str, Any]], as_json: bool = False, checked: dict[str, Any] | None = None
) -> None:
    """Say what was written; for rates also how they compare with no adaptation on all source clients."""
    facts = {"result": path, "rounds": len(history), "last_round": history[-1]}
    words = [f"{path} written after {len(history)} rounds: {figures(history[-1])}"]
    if checked is not None:
        facts["checked"] = checked
        words.append(compared(checked))
    answer(facts, *words, as_json=as_json)


def compared(checked: dict[str, Any]) -> str:
    """Learned rates against no adaptation.

    >>> compared({"round": 9, "plain_loss": 0.5, "plain_accuracy": 0.8, "adapted_loss": 0.4,
    ...           "adapted_accuracy": 0.85})
    'all source clients, no adaptation and rates of round 9: loss 0.5 and 0.4, accuracy 80.0% and 85.0%'
    """
    said = f"loss {checked['plain_loss']:.4g} and {checked['adapted_loss']:.4g}"
    if "plain_accuracy" in checked:
        said += f", accuracy {checked['plain_accuracy']:.1%} and {checked['adapted_accuracy']:.1%}"
    return f"all source clients, no adaptation and rates of round {checked['round']}: {said}"


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
