"""A federation's folder: where everything is, and what `federation.toml` says."""

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import get_type_hints

from ttpfl.errors import FederationError
from ttpfl.util.reading import read_toml
from ttpfl.util.settings_kit import as_type, check_known, integer

FILE = "federation.toml"
VERSION = 2  # of the folder: what its scripts start, and whether it says which key each site has
LOOPBACK = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Federation:
    """One superlink and its sites."""

    home: Path
    name: str
    host: str
    """The name or address that sites connect to."""
    port: int
    sites: tuple[str, ...]
    version: int = VERSION
    """Of the folder; 1 was made by an older ttpfl, and has to be renewed."""

    @classmethod
    def read(cls, home: Path) -> "Federation":
        """From the folder that `ttpfl flower init` made."""
        home = home.resolve()
        try:
            said = read_toml(home / FILE)
            for name, annotation in get_type_hints(cls).items():
                if name in said and name != "home":
                    as_type(name, said[name], annotation, FederationError)
            host, port = check_host(said["host"]), check_port(said["port"])
            sites = tuple(check_site_name(name) for name in said["sites"])
            return cls(home, check_name(said["name"]), host, port, sites, said.get("version", 1))
        except FileNotFoundError:
            raise FederationError(f"{home} is no federation: make one with ttpfl flower init") from None
        except (ValueError, KeyError, TypeError) as error:
            raise FederationError(f"{home / FILE} cannot be read: {error!r}") from None

    @property
    def address(self) -> str:
        """As Flower takes it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def bind(self) -> str:
        """What the server listens on for sites: all addresses, unless all sites are on this machine."""
        if self.host in LOOPBACK:
            return LOOPBACK[0]
        return "::" if ":" in self.host else "0.0.0.0"

    @property
    def control(self) -> Path:
        """The socket that takes orders, for the superlink's user alone."""
        return self.superlink / "control.sock"

    @property
    def certificates(self) -> Path:
        """The authority's and the server's."""
        return self.home / "certificates"

    @property
    def superlink(self) -> Path:
        """The server's own folder."""
        return self.home / "superlink"

    def site(self, name: str) -> Path:
        """A site's folder: all that its operator gets."""
        check_known("site", name, self.sites, FederationError)
        return self.home / "sites" / name


def check_name(name: str, whose: str = "a federation") -> str:
    """The name, if it can be that of a folder anywhere: it gets into scripts and units of systemd.

    >>> check_name("my trial")
    Traceback (most recent call last):
        ...
    ttpfl.errors.FederationError: 'my trial' cannot be a federation's name: use letters, digits, - and _
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", name):
        raise FederationError(f"{name!r} cannot be {whose}'s name: use letters, digits, - and _")
    return name


def check_site_name(name: str) -> str:
    """The same for a site.

    >>> check_site_name("../north")
    Traceback (most recent call last):
        ...
    ttpfl.errors.FederationError: '../north' cannot be a site's name: use letters, digits, - and _
    """
    return check_name(name, "a site")


def check_host(host: str) -> str:
    """The name or address of a machine, if it is one: it gets into scripts, certificates and configuration.

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
    """The port, if there can be such a one.

    >>> check_port(70000)
    Traceback (most recent call last):
        ...
    ttpfl.errors.FederationError: port must be an integer from 1 to 65535, got 70000
    """
    integer(1, 65535).check(FederationError, port=port)
    return port


def environment(flwr_home: Path) -> dict[str, str]:
    """For Flower's programs: their own home, and nothing sent to anybody."""
    return {
        **os.environ,
        "FLWR_HOME": str(flwr_home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
    }
