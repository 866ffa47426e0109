"""A federation's folder: its paths, and the contents of `federation.toml`."""

import ipaddress
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import get_type_hints

from ttpfl.errors import FederationError
from ttpfl.util.reading import read_toml
from ttpfl.util.settings_kit import as_type, check_known, integer

FILE = "federation.toml"
VERSION = 2  # of the folder: its scripts, and whether it lists each site's key
LOOPBACK = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Federation:
    """A superlink and its sites."""

    home: Path
    name: str
    host: str
    """The name or address that sites connect to."""
    port: int
    sites: tuple[str, ...]
    version: int = VERSION
    """Version of the folder; 1 is from an older ttpfl, and must be renewed."""

    @classmethod
    def read(cls, home: Path) -> "Federation":
        """Read the folder that `ttpfl flower init` created."""
        home = home.resolve()
        try:
            table = read_toml(home / FILE)
            for name, annotation in get_type_hints(cls).items():
                if name in table and name != "home":
                    as_type(name, table[name], annotation, FederationError)
            host, port = check_host(table["host"]), check_port(table["port"])
            sites = tuple(check_name(name, "a site") for name in table["sites"])
            return cls(home, check_name(table["name"]), host, port, sites, table.get("version", 1))
        except FileNotFoundError:
            raise FederationError(f"{home} is not a federation: create one with ttpfl flower init") from None
        except (ValueError, KeyError, TypeError) as error:
            raise FederationError(f"{home / FILE} cannot be read: {error!r}") from None

    @property
    def address(self) -> str:
        """host:port, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def bind(self) -> str:
        """The address on which the server listens for sites: any, unless all sites are on this machine."""
        if self.host in LOOPBACK:
            return LOOPBACK[0]
        return "::" if ":" in self.host else "0.0.0.0"

    @property
    def control(self) -> Path:
        """The socket for commands, which only the superlink's user can open."""
        return self.superlink / "control.sock"

    @property
    def certificates(self) -> Path:
        """The folder for certificates of the authority and the server."""
        return self.home / "certificates"

    @property
    def superlink(self) -> Path:
        """The server's folder."""
        return self.home / "superlink"

    def site(self, name: str) -> Path:
        """A site's folder: everything that its operator gets."""
        check_known("site", name, self.sites, FederationError)
        return self.home / "sites" / name


def check_name(name: str, owner: str = "a federation") -> str:
    """Return the name if it is safe as a folder name, in scripts and in systemd units.

    >>> check_name("my trial")
    Traceback (most recent call last):
        ...
    ttpfl.errors.FederationError: 'my trial' cannot be a federation's name: use letters, digits, - and _
    >>> check_name("../north", "a site")
    Traceback (most recent call last):
        ...
    ttpfl.errors.FederationError: '../north' cannot be a site's name: use letters, digits, - and _
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", name):
        raise FederationError(f"{name!r} cannot be {owner}'s name: use letters, digits, - and _")
    return name


def check_host(host: str) -> str:
    """Return a host name or IP address if it is safe in scripts, certificates and configuration.

    >>> check_host("fl.example.org"), check_host("10.0.0.7"), check_host("2001:db8::1")
    ('fl.example.org', '10.0.0.7', '2001:db8::1')
    >>> check_host("$(id)")
    Traceback (most recent call last):
        ...
    ttpfl.errors.FederationError: host is '$(id)': give the name or IP address by which sites reach the server
    """
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        label = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
        if isinstance(host, str) and len(host) <= 253 and re.fullmatch(rf"{label}(\.{label})*", host):
            return host
    raise FederationError(f"host is {host!r}: give the name or IP address by which sites reach the server")


def check_port(port: int) -> int:
    """Return the port if it is valid.

    >>> check_port(70000)
    Traceback (most recent call last):
        ...
    ttpfl.errors.FederationError: port must be an integer from 1 to 65535, got 70000
    """
    integer(1, 65535).check(FederationError, port=port)
    return port


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Set the umask of this process for a while."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def environment(flwr_home: Path) -> dict[str, str]:
    """The environment of Flower's programs: a separate home, no telemetry, no update checks."""
    return {
        **os.environ,
        "FLWR_HOME": str(flwr_home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
    }
