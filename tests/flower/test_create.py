"""The files that `ttpfl flower init` writes."""

import base64
import hashlib
import ipaddress
import json
import os
import shlex
import shutil
import stat
import subprocess
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.x509.verification import PolicyBuilder, Store
from typer.testing import CliRunner

from ttpfl.cli import app
from ttpfl.errors import FederationError
from ttpfl.federation.privacy.mechanism import kept_key
from ttpfl.flower.certificates import make_node_key
from ttpfl.flower.create import create, renew
from ttpfl.flower.folder import Federation
from ttpfl.flower.site import Site
from ttpfl.util.files import written_in_one_step


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return create(tmp_path_factory.mktemp("f") / "trial", ["north", "south"], "fl.example.org", 9000)


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


@pytest.mark.parametrize("host", ["fl.example.org", "localhost"])
def test_the_server_is_who_it_says(federation: Federation, host: str) -> None:
    """Checked by cryptography's own verifier, as a browser would."""
    folder = federation.certificates
    store = Store([certificate(folder / "ca.crt")])
    verifier = PolicyBuilder().store(store).build_server_verifier(x509.DNSName(host))
    assert len(verifier.verify(certificate(folder / "server.crt"), [])) == 2
    stranger = PolicyBuilder().store(store).build_server_verifier(x509.DNSName("evil.example.org"))
    with pytest.raises(x509.verification.VerificationError):
        stranger.verify(certificate(folder / "server.crt"), [])


def test_another_authority_is_not_believed(federation: Federation, tmp_path: Path) -> None:
    other = create(tmp_path / "other", ["north"], "fl.example.org", 9000)
    verifier = (
        PolicyBuilder()
        .store(Store([certificate(other.certificates / "ca.crt")]))
        .build_server_verifier(x509.DNSName("fl.example.org"))
    )
    with pytest.raises(x509.verification.VerificationError):
        verifier.verify(certificate(federation.certificates / "server.crt"), [])


def test_the_certificate_can_be_renewed(tmp_path: Path) -> None:
    federation = create(tmp_path / "f", ["north"])
    before = certificate(federation.certificates / "server.crt")
    authority = (federation.certificates / "ca.crt").read_bytes()
    renew(federation)
    after = certificate(federation.certificates / "server.crt")
    assert after.serial_number != before.serial_number
    assert after.not_valid_after_utc > datetime.now(UTC) + timedelta(days=390)
    assert (federation.certificates / "ca.crt").read_bytes() == authority


def test_every_site_has_a_key_pair_of_its_own(federation: Federation) -> None:
    publics = set()
    for name in federation.sites:
        private = load_ssh_private_key((federation.site(name) / "key").read_bytes(), None)
        public = load_ssh_public_key((federation.site(name) / "key.pub").read_bytes())
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert private.public_key() == public
        publics.add(public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    assert len(publics) == 2


def test_secrets_are_the_owners(federation: Federation) -> None:
    secrets = [federation.certificates / "ca.key", federation.certificates / "server.key"]
    secrets += [federation.site(name) / "key" for name in federation.sites]
    assert all(path.stat().st_mode & 0o077 == 0 for path in secrets)
    authority = (federation.certificates / "ca.key").read_bytes()
    for path in (federation.home / "sites").rglob("*"):
        assert path.is_dir() or authority not in path.read_bytes()  # it never goes to a site


@pytest.mark.parametrize("umask", [0, 0o002, 0o077])
def test_nobody_else_can_write_anything_whatever_the_umask_is(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        made = create(tmp_path / "f", ["north"])
        renew(made)
        make_node_key(made.site("north") / "key")
        with written_in_one_step(made.home / "secret", mode=0o600):
            pass
        kept_key(made.home)
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (made.home, *made.home.rglob("*"))}
    assert [path for path, mode in modes.items() if mode & 0o022] == []
    assert modes[made.superlink] == modes[made.site("north")] == 0o700
    for secret in (
        "certificates/ca.key",
        "certificates/server.key",
        "federation.toml",
        "keys.toml",
        "sites/north/key",
        "secret",
        "noise.key",
    ):
        assert modes[made.home / secret] == 0o600, secret


def test_the_key_of_noise_is_nobody_elses_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    opened = os.open

    def watched(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        descriptor = opened(path, flags, mode, **more)
        if "noise.key" in str(path) and flags & os.O_CREAT:
            made.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    monkeypatch.setattr(os, "open", watched)
    before = os.umask(0)
    try:
        kept_key(tmp_path)
    finally:
        os.umask(before)
    assert made == [0o600]


@pytest.mark.parametrize(
    "host",
    ["", " ", "$(touch x)", "a;b", "a b", "-o", "a..b", "fl.example.org:9000", "a_b", "x" * 254, "é.org"],
)
def test_a_host_that_is_none_is_refused(host: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["flower", "init", str(tmp_path / "f"), "--host", host])
    assert done.exit_code == 1
    assert "give the name or IP address" in " ".join(done.output.split())
    assert not (tmp_path / "f").exists()
    federation = create(tmp_path / "g", ["north"])
    path = federation.home / "federation.toml"
    path.write_text(path.read_text().replace('"127.0.0.1"', json.dumps(host)))
    with pytest.raises(FederationError, match="give the name or IP address"):
        Federation.read(federation.home)


@pytest.mark.parametrize("name", ["trial\nExecStartPre=/bin/id", "a b", "$(id)", "../trial", ""])
def test_a_federations_name_gets_into_no_script_unless_it_is_one(name: str, tmp_path: Path) -> None:
    made = create(tmp_path / "trial", ["north"])
    path, script = made.home / "federation.toml", made.superlink / "start.sh"
    path.write_text(path.read_text().replace('"trial"', json.dumps(name)))
    before = script.read_bytes()
    done = CliRunner().invoke(app, ["flower", "renew", str(made.home)])
    assert done.exit_code == 1
    assert "cannot be a federation's name" in " ".join(done.output.split())
    assert script.read_bytes() == before


@pytest.mark.parametrize("port", ["0", "-1", "65536"])
def test_a_port_that_is_none_is_refused(port: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["flower", "init", str(tmp_path / "f"), "--port", port])
    assert done.exit_code != 0
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize(
    ("host", "address"), [("10.0.0.7", "10.0.0.7:9000"), ("2001:db8::1", "[2001:db8::1]:9000")]
)
def test_addresses(host: str, address: str, tmp_path: Path) -> None:
    made = create(tmp_path / "f", ["north"], host, 9000)
    words = shlex.split((made.site("north") / "start.sh").read_text().splitlines()[-1])
    assert words[words.index("--superlink") + 1] == address == made.address
    names = certificate(made.certificates / "server.crt").extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert ipaddress.ip_address(host) in names.value.get_values_for_type(x509.IPAddress)


def test_the_fingerprints_are_those_of_ssh_keygen(federation: Federation) -> None:
    """By RFC 4716 and OpenSSH: the SHA-256 of the key's wire form, in base64 without padding."""
    said = tomllib.loads((federation.home / "keys.toml").read_text())
    assert said.keys() == set(federation.sites)
    for name in federation.sites:
        path = federation.site(name) / "key.pub"
        wire = base64.b64decode(path.read_text().split()[1])
        text = base64.b64encode(hashlib.sha256(wire).digest()).decode().rstrip("=")
        assert said[name] == {"fingerprint": f"SHA256:{text}"}
        if shutil.which("ssh-keygen"):
            shown = subprocess.run(["ssh-keygen", "-lf", path], capture_output=True, text=True, check=True)
            assert said[name]["fingerprint"] in shown.stdout.split()


def test_files_are_valid(federation: Federation) -> None:
    for script in federation.home.rglob("start.sh"):
        assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
        assert script.stat().st_mode & 0o100
    text = "".join(path.read_text() for path in federation.home.rglob("*.md"))
    assert "$" not in text  # nothing was left unfilled
    assert "fl.example.org:9000" in text
    assert "--insecure" not in "".join(path.read_text() for path in federation.home.rglob("start.sh"))
    for name in federation.sites:
        assert Site.read(federation.site(name) / "site.toml").name == name
    assert Federation.read(federation.home) == federation


def test_the_readme_explains_where_to_run_commands(federation: Federation) -> None:
    text = " ".join((federation.home / "README.md").read_text().split())
    assert "on the machine of the superlink" in text
    assert "only below `/srv/trial`" in text
    assert "ReadWritePaths=/srv/trial\n" in (federation.superlink / "superlink.service").read_text()


def test_mistakes(federation: Federation, tmp_path: Path) -> None:
    with pytest.raises(FederationError, match="is not empty"):
        create(federation.home, ["north"])
    with pytest.raises(FederationError, match="give each site a different name"):
        create(tmp_path / "a", ["north", "north"])
    with pytest.raises(FederationError, match="cannot be a site's name"):
        create(tmp_path / "b", ["no/rth"])
    with pytest.raises(FederationError, match="unknown site 'west'"):
        federation.site("west")
    with pytest.raises(FederationError, match="is not a federation"):
        Federation.read(tmp_path)


def test_the_command_line(tmp_path: Path) -> None:
    run = CliRunner().invoke
    made = run(app, ["flower", "init", str(tmp_path / "f"), "--sites", "2"])
    assert made.exit_code == 0, made.output
    said = run(app, ["flower", "status", str(tmp_path / "f")]).output.splitlines()
    assert said == [
        "superlink: not running here",
        "site-0: not running here, not registered",
        "site-1: not running here, not registered",
    ]
    key = (tmp_path / "f" / "sites" / "site-0" / "key.pub").read_text()
    assert run(app, ["flower", "key", str(tmp_path / "f" / "sites" / "site-0")]).exit_code == 0
    assert (tmp_path / "f" / "sites" / "site-0" / "key.pub").read_text() != key
    noise = run(app, ["flower", "noise", "--epsilon", "2", "--rounds", "30"]).output
    assert 10 < float(noise) < 12
    nowhere = run(app, ["learn", "m.safetensors", "--out", "o", "--engine", "flower"])
    assert nowhere.exit_code == 2
