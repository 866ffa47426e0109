"""A federation's folder: where everything is, and what `federation.toml` says."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ttpfl.errors import FederationError
from ttpfl.flower.typed import check_types
from ttpfl.reading import read_toml

FILE = "federation.toml"


@dataclass(frozen=True)
class Federation:
    """One superlink and its sites."""

    home: Path
    name: str
    host: str
    """The name or address that sites connect to."""
    port: int
    sites: tuple[str, ...]

    @classmethod
    def read(cls, home: Path) -> "Federation":
        """From the folder that `ttpfl flower init` made."""
        home = home.resolve()
        try:
            said = read_toml(home / FILE)
            check_types(cls, said)
            return cls(home, said["name"], said["host"], said["port"], tuple(said["sites"]))
        except FileNotFoundError:
            raise FederationError(f"{home} is no federation: make one with ttpfl flower init") from None
        except (ValueError, KeyError, TypeError) as error:
            raise FederationError(f"{home / FILE} cannot be read: {error!r}") from None

    @property
    def address(self) -> str:
        """As Flower takes it."""
        return f"{self.host}:{self.port}"

    @property
    def certificates(self) -> Path:
        """The authority's and the server's."""
        return self.home / "certificates"

    @property
    def superlink(self) -> Path:
        """The server's own folder."""
        return self.home / "superlink"

    @property
    def app(self) -> Path:
        """What Flower is told to run."""
        return self.home / "app"

    def site(self, name: str) -> Path:
        """A site's folder: all that its operator gets."""
        if name not in self.sites:
            raise FederationError(f"there is no site {name!r}; there are: {', '.join(self.sites)}")
        return self.home / "sites" / name


def check_site_name(name: str) -> str:
    """The name, if it can be that of a folder anywhere.

    >>> check_site_name("../north")
    Traceback (most recent call last):
        ...
    ttpfl.errors.FederationError: '../north' cannot be a site's name: use letters, digits, - and _
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", name):
        raise FederationError(f"{name!r} cannot be a site's name: use letters, digits, - and _")
    return name


def environment(flwr_home: Path) -> dict[str, str]:
    """For Flower's programs: their own home, and nothing sent to anybody."""
    return {
        **os.environ,
        "FLWR_HOME": str(flwr_home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
    }
