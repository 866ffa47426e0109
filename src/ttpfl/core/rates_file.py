"""The rates file: a safetensors file with the tensor `rates` and a JSON card that describes it.

The tensor is float32 with one number per rate. The card is under the metadata key `ttpfl`. It has a checksum
over itself and the tensor, since safetensors has none.
"""

import json
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ttpfl._version import __version__
from ttpfl.core.guard import Guard
from ttpfl.core.network import ModuleSpec
from ttpfl.core.privacy_record import Account
from ttpfl.errors import RatesFileError
from ttpfl.util.checksum import is_sound, sealed
from ttpfl.util.files import written_in_one_step
from ttpfl.util.reading import parse_json, regular_size

FORMAT = "ttpfl.rates"
VERSION = 2
_LINEAR_ONLY = 1  # the version before variances could move in the log domain
LARGEST = 64 * 2**20  # bytes; a typical file has a few thousand

_RATES_FIELDS = ("granularity", "only", "mode", "fingerprint", "weights_hash", "learned")
_UNNAMED = ""  # the checksum does not include the tensor's name
_MODULE_FIELDS = ("name", "shape", "kind", "block", "statistic", "nonnegative")


def write(path: str | PathLike[str], fields: Mapping[str, Any], names: Iterable[str]) -> None:
    """Write the fields of `Rates` and the names of the rates to `path` atomically."""
    values = fields["values"].detach().to("cpu", torch.float32).contiguous()
    card: dict[str, Any] = {name: fields[name] for name in (*_RATES_FIELDS, "variance")}
    card |= {"prior": list(fields["prior"])} if fields["prior"] else {}
    card |= {"head": fields["head"]} if fields["head"] is not None else {}
    card |= {} if fields["guard"] is None else {"guard": fields["guard"].as_json()}
    card |= {"format": FORMAT, "version": VERSION, "library": __version__, "names": list(names)}
    card["modules"] = [[getattr(spec, name) for name in _MODULE_FIELDS] for spec in fields["modules"]]
    card["account"] = fields["account"].of(values).as_json()
    data = save({"rates": values}, metadata={"ttpfl": json.dumps(sealed(card, {_UNNAMED: values}))})
    with written_in_one_step(Path(path)) as file:
        file.write(data)


def check_size(size: int, where: object) -> None:
    """Raise a RatesFileError if a file of `size` bytes is too large for rates.

    >>> check_size(10**9, "rates.safetensors")
    Traceback (most recent call last):
        ...
    ttpfl.errors.RatesFileError: rates.safetensors is too large for a rates file (1000000000 bytes, ...
    """
    if size > LARGEST:
        raise RatesFileError(
            f"{where} is too large for a rates file ({size} bytes, more than {LARGEST}): "
            "copy it again from where it was learned"
        )


def read(path: str | PathLike[str]) -> dict[str, Any]:
    """Read the fields of `Rates` from `path`; raise a RatesFileError if it is not a valid rates file."""
    check_size(regular_size(path), path)  # missing files and directories raise the system's error
    try:
        with safe_open(path, framework="pt") as file:
            card = parse_json((file.metadata() or {})["ttpfl"])
            if card.get("format") in (None, "ttpfl.model") and "rates" not in file.keys():  # noqa: SIM118
                raise RatesFileError("is a model file, not a rates file: pass the result of `ttpfl learn`")
            values = file.get_tensor("rates")
        return _fields(card, values)
    except RatesFileError as error:
        raise RatesFileError(f"{path} {error}") from None
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RatesFileError(
            f"{path} is not a valid rates file ({type(error).__name__}: {error}): "
            "copy it again from where it was learned"
        ) from error


def _fields(card: dict[str, Any], values: Tensor) -> dict[str, Any]:
    if card["format"] != FORMAT:
        raise RatesFileError(f"is not a rates file but {card['format']!r}")
    if card["version"] not in (_LINEAR_ONLY, VERSION):
        raise RatesFileError(f"has format version {card['version']!r}, not {VERSION}: upgrade ttpfl")
    if not is_sound(card, {_UNNAMED: values}):
        raise RatesFileError("is damaged (its checksum does not match): copy it again")
    modules = tuple(_module(*row) for row in card["modules"])
    if values.dtype != torch.float32 or len({spec.name for spec in modules}) != len(modules):
        raise RatesFileError("has values that are not float32, or lists a module twice")
    if "account" in card:
        account = Account.from_json(card["account"])
    else:
        account = Account.of_old_file(card["learned"], values)
    variance = "linear" if card["version"] == _LINEAR_ONLY else card["variance"]
    fields = {"values": values, "modules": modules, "account": account, "variance": variance}
    fields["prior"] = tuple(map(float, card.get("prior", ())))
    fields["head"] = card.get("head")
    if not isinstance(fields["head"], str | None):
        raise RatesFileError(f"has a last layer that is no name: {fields['head']!r:.40}")
    fields["guard"] = Guard.from_json(card["guard"]) if "guard" in card else None
    return fields | {name: card[name] for name in _RATES_FIELDS}


def _module(
    name: str, shape: list[int], kind: str, block: str, statistic: bool, nonnegative: bool
) -> ModuleSpec:
    texts, flags = (name, kind, block), (statistic, nonnegative)
    valid = all(isinstance(text, str) for text in texts) and all(isinstance(flag, bool) for flag in flags)
    if not valid or not all(isinstance(side, int) and side >= 0 for side in shape):
        raise RatesFileError(f"has an invalid description of module {name!r}")
    return ModuleSpec(name, tuple(shape), kind, block, statistic, nonnegative)
