"""The results of `ttpfl train` and `ttpfl learn` as text."""

from pathlib import Path
from typing import Any

from ttpfl.cli.output import print_result
from ttpfl.federation.privacy.accountant import in_words
from ttpfl.util.printable import counted


def report(
    path: Path, history: list[dict[str, Any]], as_json: bool = False, learned: dict[str, Any] | None = None
) -> None:
    """Print what was written and, for rates, how they compare with no adaptation on source clients."""
    content = {"result": path, "rounds": len(history), "last_round": history[-1]}
    words = [f"{path} written after {counted(len(history), 'round')}: {figures(history[-1])}"]
    if learned is not None and "checked" in learned:
        content["checked"] = learned["checked"]
        words.append(compared(learned["checked"], learned["clients"]))
        words += expected(learned["checked"])
    print_result(content, *words, as_json=as_json)


def compared(checked: dict[str, Any], clients: int) -> str:
    """Learned rates compared with no adaptation; `clients` is the number of source clients.

    >>> compared({"round": 9, "last_round": 9, "clients": 8, "samples": 800, "plain_loss": 0.5,
    ...           "adapted_loss": 0.4}, clients=60)
    'source clients of the last rounds (800 samples), no adaptation -> rates of round 9: loss 0.5 -> 0.4'
    """
    who = "all source clients" if checked["clients"] == clients else "source clients of the last rounds"
    change = f"loss {checked['plain_loss']:.4g} -> {checked['adapted_loss']:.4g}"
    if "plain_accuracy" in checked:
        change += f", accuracy {checked['plain_accuracy']:.1%} -> {checked['adapted_accuracy']:.1%}"
    return (
        f"{who} ({checked['samples']} samples), no adaptation -> rates of round {checked['round']}: {change}"
    )


def expected(checked: dict[str, Any]) -> list[str]:
    """Why a search ended, and the gain that it expects at a new client.

    >>> expected({"stopped": "converged", "expected": {"gain": 0.25, "interval": [0.2, 0.3], "clients": 60}})
    ['stopped: converged', 'new clients: loss lower by 0.25 on average (90% interval 0.2 to 0.3)']
    >>> expected({"round": 9})
    []
    """
    lines = [f"stopped: {checked['stopped']}"] if "stopped" in checked else []
    if gain := checked.get("expected"):
        low, high = gain["interval"]
        interval = f"90% interval {low:.3g} to {high:.3g}"
        lines.append(f"new clients: loss lower by {gain['gain']:.3g} on average ({interval})")
    return lines


def figures(record: dict[str, Any]) -> str:
    """A round as text.

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
