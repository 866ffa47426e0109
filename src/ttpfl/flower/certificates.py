"""A federation's own certificates and keys: a private authority, a server certificate, a key pair per site.

Everything is made by the package `cryptography`; elliptic curve P-384 throughout.
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
SERVER_DAYS = 397  # what browsers accept; renewed with `ttpfl flower renew`


def make_authority(folder: Path, name: str) -> None:
    """`ca.key`, which never leaves the server's operator, and `ca.crt`, which every site gets."""
    key = ec.generate_private_key(ec.SECP384R1())
    subject = _name(f"{name} authority")
    only_signs = x509.KeyUsage(
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
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(subject, subject, key.public_key(), timedelta(days=365 * AUTHORITY_YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(only_signs, critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA384())
    )
    write_file(folder / "ca.key", _pem(key), 0o600)
    write_file(folder / "ca.crt", certificate.public_bytes(Encoding.PEM), 0o644)


def make_server_certificate(folder: Path, hosts: Sequence[str]) -> None:
    """`server.key` and `server.crt` for these names and addresses, signed by the authority in `folder`."""
    authority = load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
    assert isinstance(authority, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    key = ec.generate_private_key(ec.SECP384R1())
    certificate = (
        _builder(_name(hosts[0]), issuer.subject, key.public_key(), timedelta(days=SERVER_DAYS))
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False
        )
        .sign(authority, hashes.SHA384())
    )
    write_file(folder / "server.key", _pem(key), 0o600)
    write_file(folder / "server.crt", certificate.public_bytes(Encoding.PEM), 0o644)


def make_node_key(path: Path) -> None:
    """A site's key pair in OpenSSH's format, as Flower reads it: `path`, and `path`.pub for the server."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_file(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), 0o600)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    write_file(path.with_name(f"{path.name}.pub"), public + b"\n", 0o644)


def read_public_key(path: Path) -> bytes:
    """The content of a file with a public key, if it is one that Flower takes."""
    content = path.read_bytes()
    try:
        key = load_ssh_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise FederationError(f"{path} is no public key: {error}. Make one with ttpfl flower key") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise FederationError(f"{path} is no key on an elliptic curve: make one with ttpfl flower key")
    return content


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, life: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks at sites may be a little behind
        .not_valid_after(now + life)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def write_file(path: Path, data: bytes, mode: int) -> None:
    """A file with this mode from the first moment on, whatever the umask is."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode & 0o700)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(data)
