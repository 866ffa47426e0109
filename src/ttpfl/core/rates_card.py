"""The README of rates on a model hub: what they are, what they fit, and what they were shown to do."""

from collections.abc import Mapping
from typing import Any

from ttpfl._version import __version__
from ttpfl.core.rates_text import price
from ttpfl.errors import RatesError
from ttpfl.util.front_matter import front_matter
from ttpfl.util.printable import counted, one_line

USE = """```python
import ttpfl

rates = ttpfl.Rates.from_hub("{repo_id}", model=model)  # checks that they fit
personal = ttpfl.Personalizer(model, rates, mode="{mode}")
logits = personal(batch)  # adapts to the unlabelled batch
```"""


def page(
    repo_id: str, rates: Mapping[str, Any], table: str, license: str | None, base_model: str | None
) -> str:
    """A Markdown page.

    Args:
        repo_id: where the rates will be.
        rates: fields of `Rates`, with `cost` and `variance`.
        table: every rate, as text.
        license: an identifier such as "apache-2.0".
        base_model: repository of the model that the rates are for.
    """
    try:
        front = front_matter({"license": license, "base_model": base_model})
    except ValueError as error:
        raise RatesError(str(error)) from None
    parts = [
        front,
        f"# {repo_id}",
        "Adaptation rates for test-time personalisation with ttpfl: how far each module of a model moves "
        "along its direction on an unlabelled batch. The file has no weights, and needs the model it was "
        "learned for.",
        "## Use",
        USE.format(repo_id=repo_id, mode=rates["mode"]),
        "## The model that they fit",
        _rows(_model(rates, base_model)),
        "## What source clients showed",
        _figures(rates["learned"].get("checked") or {}),
        "## Rates",
        f"```text\n{table}\n```",
        f"Licence: {license or 'not stated; ask the owner before use'}. Written by ttpfl {__version__}.",
    ]
    return "\n\n".join(parts) + "\n"


def _model(rates: Mapping[str, Any], base_model: str | None) -> dict[str, str]:
    return {
        "model": base_model or "not stated",
        "hash of the architecture": f"`{rates['fingerprint']}`",
        "hash of the weights": f"`{rates['weights_hash']}`",
        "rates": f"{len(rates['values'])}, one per {rates['granularity']}, refined in {rates['mode']} mode",
        "modules": rates["only"] or "all",
        "cost": price(rates["cost"]),
        "guard": "yes" if rates["guard"] else "no",
        "privacy": _privacy(rates["account"].of(rates["values"])),
        **{f"learned: {name}": f"{value}" for name, value in rates["learned"].items() if name != "checked"},
    }


def _privacy(account: Any) -> str:
    return f"no bound: {account.no_bound}" if account.no_bound else counted(len(account.runs), "private run")


def _figures(checked: Mapping[str, Any]) -> str:
    """Means over the source clients, and the gain to expect."""
    names = {"loss": "{:.4f}", "accuracy": "{:.1%}"}
    rows = {
        f"{name}, {when} adaptation": text.format(checked[key])
        for name, text in names.items()
        for when, key in (("without", f"plain_{name}"), ("with", f"adapted_{name}"))
        if isinstance(checked.get(key), float)
    }
    if not rows:
        return "No comparison with the model without adaptation was recorded."
    if "clients" in checked:
        rows = {"source clients": str(checked["clients"])} | rows
    if expected := checked.get("expected"):
        low, high = expected["interval"]
        gain = f"{expected['gain']:.4f} (90 % interval {low:.4f} to {high:.4f})"
        rows["decrease of the loss to expect at a new client"] = gain
    return _rows(rows) + "\n\nNot figures of new clients: compare with and without adaptation on your own."


def _rows(rows: Mapping[str, str]) -> str:
    lines = [f"| {name} | {one_line(value).replace('|', chr(92) + '|')} |" for name, value in rows.items()]
    return "\n".join(["| | |", "| --- | --- |", *lines])
