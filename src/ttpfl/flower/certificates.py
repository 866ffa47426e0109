"""A federation's certificates and keys: a private authority, a server certificate, and a key pair per site.

The package `cryptography` creates all of them, on the elliptic curve P-384.
"""

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import NameOID

from ttpfl.errors import FederationError

AUTHORITY_YEARS = 10
SERVER_DAYS = 397  # the longest that browsers accept; `ttpfl flower renew` renews it


def make_authority(folder: Path, name: str) -> None:
    """Write `ca.key`, which never leaves the server's operator, and `ca.crt`, which every site gets."""
    key = ec.generate_private_key(ec.SECP384R1())
    subject = _name(f"{name} authority")
    sign_only = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(subject, subject, key.public_key(), timedelta(days=365 * AUTHORITY_YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(sign_only, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    _write_pair(folder / "ca", key, certificate)


def make_server_certificate(folder: Path, hosts: Sequence[str]) -> None:
    """Write `server.key` and `server.crt` for these hosts, signed by the authority in `folder`."""
    authority = load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
    assert isinstance(authority, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    key = ec.generate_private_key(ec.SECP384R1())
    certificate = (
        _builder(_name(hosts[0]), issuer.subject, key.public_key(), timedelta(days=SERVER_DAYS))
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(authority, hashes.SHA384())
    )
    _write_pair(folder / "server", key, certificate)


def make_node_key(path: Path) -> None:
    """Write a site's key pair in the OpenSSH format of Flower: `path`, and `path`.pub for the server."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_file(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), 0o600)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    write_file(path.with_name(f"{path.name}.pub"), public + b"\n", 0o644)


def read_public_key(path: Path) -> bytes:
    """Read a public key from a file, and refuse kinds that Flower does not accept."""
    content = path.read_bytes()
    try:
        key = load_ssh_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise FederationError(f"{path} is not a public key ({error}): run `ttpfl flower key`") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise FederationError(f"{path} is not an elliptic curve key: run `ttpfl flower key`")
    return content


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lifetime: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # the clock of a site may be slow
        .not_valid_after(now + lifetime)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_pair(path: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_file(path.with_suffix(".key"), pem, 0o600)
    write_file(path.with_suffix(".crt"), certificate.public_bytes(Encoding.PEM), 0o644)


def write_file(path: Path, data: bytes, mode: int) -> None:
    """Write a file with exactly this mode, and never a more permissive one, whatever the umask."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode & 0o700)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(data)
