"""Create a federation's folder: certificates, keys, scripts, configuration and instructions."""

import json
import secrets
import shlex
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from string import Template

from ttpfl._version import __version__
from ttpfl.errors import FederationError
from ttpfl.flower import certificates
from ttpfl.flower.folder import FILE, LOOPBACK, VERSION, Federation, check_host, check_name, check_port, umask
from ttpfl.flower.identity import Identity, fingerprint_of, read_identities, write_identities
from ttpfl.util.files import written_in_one_step

HERE = Path(__file__).parent
PORTS = range(20_000, 32_000)


def create(home: Path, sites: Sequence[str], host: str = "127.0.0.1", port: int | None = None) -> Federation:
    """Create a federation in a new folder.

    Args:
        home: The folder, which must not exist or be empty. Its name becomes the federation's.
        sites: Names of the sites.
        host: Name or address by which sites reach the server.
        port: Port of the server; a free one if None.
    """
    host, port = check_host(host), free_port() if port is None else check_port(port)
    home = home.resolve()
    if home.exists() and any(home.iterdir()):
        raise FederationError(f"{home} is not empty: choose another folder")
    names = tuple(check_name(name, "a site") for name in sites)
    if not names or len(set(names)) != len(names):
        raise FederationError(f"sites are {', '.join(names) or 'missing'}: give each site a different name")
    federation = Federation(home, check_name(home.name), host, port, names)
    with umask(0o077):  # only this user can read or write what is created
        for folder in (federation.certificates, federation.superlink, home / "sites"):
            folder.mkdir(parents=True)
        _write_description(federation)
        certificates.make_authority(federation.certificates, federation.name)
        for name in names:
            _make_site(federation, name)
    renew(federation)
    return federation


def renew(federation: Federation) -> None:
    """Write a new server certificate and this version's scripts and instructions; keep keys and policies."""
    hosts = list(dict.fromkeys((federation.host, *LOOPBACK)))
    with umask(0o077):
        federation.superlink.chmod(0o700)
        certificates.make_server_certificate(federation.certificates, hosts)
        _write_scripts(federation)
        if federation.version != VERSION:
            _write_description(replace(federation, version=VERSION))
        _add_keys(federation)


def check_current(federation: Federation) -> None:
    """Refuse a folder of another version, since its scripts start other programs than today's."""
    if federation.version != VERSION:
        raise FederationError(
            f"{federation.home} was made by another version of ttpfl (its version is {federation.version}, "
            f"not {VERSION}): stop it, run `ttpfl flower renew {shlex.quote(str(federation.home))}`, "
            "which keeps keys, data and policies, start it again, and give each site its new start.sh"
        )


def free_port() -> int:
    """A port that nothing currently listens on."""
    while True:
        # Below the range of outgoing connections, one of which could take the port before it is used.
        port = PORTS.start + secrets.randbelow(len(PORTS))
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _write_description(federation: Federation) -> None:
    text = (
        f"version = {federation.version}\n"
        f"name = {json.dumps(federation.name)}\n"
        f"host = {json.dumps(federation.host)}\n"
        f"port = {federation.port}\n"
        f"# The order gives each site its number: add new ones at the end.\n"
        f"sites = {json.dumps(list(federation.sites))}\n"
    )
    with written_in_one_step(federation.home / FILE, mode=0o600) as file:
        file.write(text.encode())


def _add_keys(federation: Federation) -> None:
    """Add missing sites to `keys.toml`, from the public keys in the folder."""
    identities, old_file = read_identities(federation.home), federation.superlink / "nodes.json"
    nodes = json.loads(old_file.read_text()) if old_file.exists() else {}
    for name in federation.sites:
        if name not in identities and (public_key := federation.site(name) / "key.pub").exists():
            identities[name] = Identity(fingerprint_of(public_key.read_bytes()), nodes.get(name))
    write_identities(federation.home, identities)


def _write_scripts(federation: Federation) -> None:
    _fill(federation, "README.md", federation.home / "README.md")
    _fill(federation, "superlink-start.sh", federation.superlink / "start.sh")
    _fill(federation, "superlink.service", federation.superlink / "superlink.service")
    for name in federation.sites:
        if (folder := federation.site(name)).exists():
            _fill(federation, "site-README.md", folder / "README.md", site=name)
            _fill(federation, "site-start.sh", folder / "start.sh", site=name)
            _fill(federation, "site.service", folder / "site.service", site=name)


def _make_site(federation: Federation, name: str) -> None:
    folder = federation.site(name)
    (folder / "data" / "source").mkdir(parents=True)
    certificates.make_node_key(folder / "key")
    certificates.write_file(folder / "ca.crt", (federation.certificates / "ca.crt").read_bytes(), 0o644)
    _fill(federation, "site.toml", folder / "site.toml", site=name)


def _fill(federation: Federation, template: str, path: Path, site: str = "") -> None:
    text = Template((HERE / "templates" / template).read_text()).substitute(
        name=federation.name,
        address=federation.address,
        quoted_address=shlex.quote(federation.address),
        sites=", ".join(federation.sites),
        site=site,
        version=__version__,
    )
    certificates.write_file(path, text.encode(), 0o755 if path.suffix == ".sh" else 0o644)
