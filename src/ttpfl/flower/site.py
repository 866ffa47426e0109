"""A site: where its data is, and what its operator allows. Nothing heavy is imported here."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_type_hints

from ttpfl.errors import FederationError, RefusedError
from ttpfl.flower.audit import Audit
from ttpfl.flower.policy import Budget, Policy
from ttpfl.util.reading import read_toml
from ttpfl.util.settings_kit import as_table, one_of

LAYOUTS = ("arrays", "folder")


def runtime_socket(folder: Path) -> Path:
    """The socket between a site's supernode and the processes for its messages."""
    return folder / "flwr" / "runtime.sock"


@dataclass(frozen=True)
class Site:
    """The contents of `site.toml`. Paths in it are relative to its folder."""

    home: Path
    name: str
    data: str = "data"
    """The folder with this site's data."""
    layout: str = "arrays"
    """arrays (source/<name>.npz) or folder (source/<name>/<class>/*.png); see `ttpfl data info`."""
    classes: list[str] | None = None
    """All classes of the federation, in the order of the model's outputs. Required for the layout folder,
    where a site that lacks a class would otherwise number the others differently."""
    image_size: int | list[int] | None = None
    scale: float | None = None
    mean: list[float] | None = None
    std: list[float] | None = None
    """For samples that are not images: a factor, and the mean and standard deviation of each channel after
    it, the same at every site."""
    validation: float = 0.2
    """The fraction of the data held out for learning rates."""
    seed: int = 0
    """Random seed of the split into training and validation data."""
    threads: int = 1
    policy: Policy = field(default_factory=Policy)

    def __post_init__(self) -> None:
        one_of(*LAYOUTS).check(FederationError, layout=self.layout)
        if self.layout == "folder" and self.classes is None:
            raise FederationError("layout is 'folder': list all classes of the federation in classes")

    @classmethod
    def read(cls, path: Path) -> "Site":
        """Read a `site.toml`."""
        try:
            table = read_toml(path)
            policy = Policy.read(table.pop("policy", {}))
            types = {name: type_ for name, type_ in get_type_hints(cls).items() if name != "home"}
            return cls(home=path.parent, policy=policy, **as_table("", table, types, FederationError))
        except (ValueError, TypeError) as error:
            raise FederationError(f"{path}: {error}") from error

    @property
    def audit(self) -> Audit:
        """The log of all messages."""
        return Audit(self.home / "audit.jsonl")

    def model_file(self, hash_: str) -> Path:
        """The path for the model with this hash."""
        if not re.fullmatch(r"[0-9a-f]{64}", hash_):
            raise RefusedError(f"{hash_!r} is not the hash of a model")
        return self.home / "models" / f"{hash_}.safetensors"

    @property
    def budget(self) -> Budget:
        """The privacy cost of replies with local noise."""
        return Budget(self.home / "privacy.json", self.policy)
