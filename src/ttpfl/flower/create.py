"""Making a federation's folder: certificates, keys, scripts, configuration and instructions."""

import json
import secrets
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from string import Template

from ttpfl._version import __version__
from ttpfl.errors import FederationError
from ttpfl.flower import certificates
from ttpfl.flower.folder import FILE, Federation, check_site_name

HERE = Path(__file__).parent
LOOPBACK = ("127.0.0.1", "localhost")
PORTS = range(20_000, 32_000)


def create(home: Path, sites: Sequence[str], host: str = "127.0.0.1", port: int | None = None) -> Federation:
    """Everything for a federation of these sites, in a new folder.

    Args:
        home: the folder; it must not be there, or be empty. Its name is the federation's.
        sites: their names.
        host: the name or address by which sites reach the server.
        port: the server's; a free one if None.
    """
    home = home.resolve()
    if home.exists() and any(home.iterdir()):
        raise FederationError(f"{home} is not empty: choose another folder")
    names = tuple(check_site_name(name) for name in sites)
    if not names or len(set(names)) != len(names):
        raise FederationError(f"sites are {', '.join(names) or 'missing'}: give each a name of its own")
    federation = Federation(home, check_site_name(home.name), host, port or free_port(), names)
    for folder in (federation.certificates, federation.superlink, home / "admin", home / "sites"):
        folder.mkdir(parents=True)
    _write_description(federation)
    certificates.make_authority(federation.certificates, federation.name)
    renew(federation)
    shutil.copytree(HERE / "app", federation.app, ignore=shutil.ignore_patterns("__pycache__"))
    _fill(federation, "config.toml", home / "admin" / "config.toml")
    _fill(federation, "README.md", home / "README.md")
    _fill(federation, "superlink-start.sh", federation.superlink / "start.sh", executable=True)
    _fill(federation, "superlink.service", federation.superlink / "superlink.service")
    for name in names:
        _make_site(federation, name)
    return federation


def renew(federation: Federation) -> None:
    """A new server certificate; the server's own programs use the loopback address."""
    hosts = list(dict.fromkeys((federation.host, *LOOPBACK)))
    certificates.make_server_certificate(federation.certificates, hosts)


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    while True:
        # Below those that systems give to outgoing connections, one of which could take it before it is used.
        port = PORTS.start + secrets.randbelow(len(PORTS))
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _write_description(federation: Federation) -> None:
    (federation.home / FILE).write_text(
        f"name = {json.dumps(federation.name)}\n"
        f"host = {json.dumps(federation.host)}\n"
        f"port = {federation.port}\n"
        f"# The order gives each site its number: add new ones at the end.\n"
        f"sites = {json.dumps(list(federation.sites))}\n"
    )


def _make_site(federation: Federation, name: str) -> None:
    folder = federation.site(name)
    (folder / "data" / "source").mkdir(parents=True)
    folder.chmod(0o700)
    certificates.make_node_key(folder / "key")
    shutil.copy(federation.certificates / "ca.crt", folder / "ca.crt")
    _fill(federation, "site.toml", folder / "site.toml", site=name)
    _fill(federation, "site-README.md", folder / "README.md", site=name)
    _fill(federation, "site-start.sh", folder / "start.sh", site=name, executable=True)
    _fill(federation, "site.service", folder / "site.service", site=name)


def _fill(
    federation: Federation, template: str, path: Path, site: str = "", executable: bool = False
) -> None:
    text = Template((HERE / "templates" / template).read_text()).substitute(
        name=federation.name,
        host=federation.host,
        port=federation.port,
        bind="127.0.0.1" if federation.host in LOOPBACK else "0.0.0.0",
        sites=", ".join(federation.sites),
        site=site,
        ca=federation.certificates / "ca.crt",
        version=__version__,
    )
    path.write_text(text)
    path.chmod(0o755 if executable else 0o644)
