"""What `ttpfl flower init` writes."""

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

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
from ttpfl.flower.create import create, renew
from ttpfl.flower.folder import Federation
from ttpfl.flower.site import Site


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


def test_files_are_sound(federation: Federation) -> None:
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


def test_the_operator_is_told_where_to_give_orders(federation: Federation) -> None:
    text = " ".join((federation.home / "README.md").read_text().split())
    assert "on the machine of the superlink" in text
    assert "below `/srv/trial` alone" in text
    assert "ReadWritePaths=/srv/trial\n" in (federation.superlink / "superlink.service").read_text()


def test_mistakes(federation: Federation, tmp_path: Path) -> None:
    with pytest.raises(FederationError, match="is not empty"):
        create(federation.home, ["north"])
    with pytest.raises(FederationError, match="a name of its own"):
        create(tmp_path / "a", ["north", "north"])
    with pytest.raises(FederationError, match="cannot be a site's name"):
        create(tmp_path / "b", ["no/rth"])
    with pytest.raises(FederationError, match="there is no site 'west'"):
        federation.site("west")
    with pytest.raises(FederationError, match="is no federation"):
        Federation.read(tmp_path)


def test_the_command_line(tmp_path: Path) -> None:
    run = CliRunner().invoke
    made = run(app, ["flower", "init", str(tmp_path / "f"), "--sites", "2"])
    assert made.exit_code == 0, made.output
    said = run(app, ["flower", "status", str(tmp_path / "f")]).output.splitlines()
    assert said == [
        "superlink: does not run here",
        "site-0: does not run here, not registered",
        "site-1: does not run here, not registered",
    ]
    key = (tmp_path / "f" / "sites" / "site-0" / "key.pub").read_text()
    assert run(app, ["flower", "key", str(tmp_path / "f" / "sites" / "site-0")]).exit_code == 0
    assert (tmp_path / "f" / "sites" / "site-0" / "key.pub").read_text() != key
    noise = run(app, ["flower", "noise", "--epsilon", "2", "--rounds", "30"]).output
    assert 10 < float(noise) < 12
    nowhere = run(app, ["learn", "m.safetensors", "--out", "o", "--engine", "flower"])
    assert nowhere.exit_code == 2
