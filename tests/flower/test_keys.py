"""Managing keys, at Flower's own superlink."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.proto.control_pb2 import ListNodesRequest

from tests.helpers.flower.own_superlink import superlink_of
from ttpfl.errors import FederationError
from ttpfl.flower import control, loopback
from ttpfl.flower.certificates import make_node_key
from ttpfl.flower.create import create, renew
from ttpfl.flower.folder import Federation
from ttpfl.flower.identity import OLD_MARK, fingerprint_of, read_identities


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    made = create(tmp_path / "trial", ["north", "south", "west"])
    with superlink_of(made):
        yield made


def keys(federation: Federation) -> dict[int, str]:
    """The fingerprints of keys that the superlink lets in, by its numbers for them."""
    with control.superlink(federation) as link:
        said = link.ListNodes(ListNodesRequest()).nodes_info
    return {node.node_id: fingerprint_of(node.public_key) for node in said if node.status != "unregistered"}


def bound(federation: Federation) -> dict[int, str]:
    """The same, by `keys.toml`."""
    known = read_identities(federation.home).values()
    return {identity.node: identity.fingerprint for identity in known if identity.node is not None}


def test_what_was_registered_is_known_also_if_another_was_not(federation: Federation) -> None:
    key = federation.site("south") / "key.pub"
    own = key.read_bytes()
    key.write_bytes((federation.site("north") / "key.pub").read_bytes())
    with pytest.raises(FederationError, match=r"not registered: south: .*SHA256:.*use rotate"):
        control.register_all(federation)
    assert set(control.nodes(federation)) == {"north", "west"}
    assert keys(federation) == bound(federation)
    key.write_bytes(own)
    assert control.register_all(federation) == ["south"]
    assert set(control.nodes(federation)) == {"north", "south", "west"}
    assert keys(federation) == bound(federation)
    with pytest.raises(FederationError, match="already registered"):
        control.register(federation, "north")


def test_a_refusal_of_the_superlink_is_reported(federation: Federation) -> None:
    make_node_key(federation.site("south") / "key")
    north = (federation.site("north") / "key.pub").read_bytes()
    control.register(federation, "north")
    with pytest.raises(FederationError, match=r"the superlink refuses: .*[Pp]ublic key"):
        control.rotate(federation, "south", federation.site("north") / "key.pub")
    assert set(keys(federation).values()) == {fingerprint_of(north)}


def test_a_site_gives_its_own_new_key(federation: Federation, tmp_path: Path) -> None:
    control.register_all(federation)
    old = fingerprint_of((federation.site("west") / "key.pub").read_bytes())
    make_node_key(tmp_path / "new")
    control.rotate(federation, "west", tmp_path / "new.pub")
    new = (tmp_path / "new.pub").read_bytes()
    assert (federation.site("west") / "key.pub").read_bytes() == new
    assert read_identities(federation.home)["west"].fingerprint == fingerprint_of(new)
    assert keys(federation) == bound(federation)
    assert old not in keys(federation).values()
    control.revoke(federation, "west")
    assert "west" not in read_identities(federation.home)
    assert len(keys(federation)) == 2


def test_the_new_key_may_be_in_the_sites_folder_already(federation: Federation) -> None:
    control.register_all(federation)
    make_node_key(federation.site("west") / "key")
    control.rotate(federation, "west", federation.site("west") / "key.pub")
    assert fingerprint_of((federation.site("west") / "key.pub").read_bytes()) in keys(federation).values()
    assert keys(federation) == bound(federation)
    assert len(keys(federation)) == 3


@pytest.mark.parametrize("bad", ["missing", "junk", "private", "other kind"])
def test_a_bad_key_does_not_cost_the_one_that_is_there(
    bad: str, federation: Federation, tmp_path: Path
) -> None:
    control.register_all(federation)
    before, given = keys(federation), tmp_path / "given"
    if bad == "junk":
        given.write_bytes(b"junk")
    elif bad == "private":
        make_node_key(given)
    elif bad == "other kind":
        key = ed25519.Ed25519PrivateKey.generate().public_key()
        given.write_bytes(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    with pytest.raises((FederationError, FileNotFoundError), match="given"):
        control.rotate(federation, "west", given)
    assert keys(federation) == before == bound(federation)


@pytest.mark.parametrize("command", ["register", "rotate", "rotate with a key", "revoke"])
def test_commands_leave_no_file_that_others_can_write(
    command: str, federation: Federation, tmp_path: Path
) -> None:
    make_node_key(tmp_path / "new")
    _keys_in_the_description(federation)
    before = os.umask(0)
    try:
        control.register_all(federation)
        if command == "revoke":
            control.revoke(federation, "west")
        elif command != "register":
            control.rotate(federation, "west", tmp_path / "new.pub" if "key" in command else None)
    finally:
        os.umask(before)
    for name in ("federation.toml", "keys.toml"):
        assert stat.S_IMODE((federation.home / name).stat().st_mode) == 0o600, name
    assert (federation.site("west") / "key.pub").stat().st_mode & 0o022 == 0


def _keys_in_the_description(federation: Federation, mark: str = OLD_MARK) -> None:
    """As the versions before had it."""
    keys = (federation.home / "keys.toml").read_text().replace("\n[", "\n[keys.").split("\n", 1)[1]
    with (federation.home / "federation.toml").open("a") as file:
        file.write(f"\n{mark} (`ssh-keygen -lf key.pub`). ttpfl rewrites it.\n{keys}")
    (federation.home / "keys.toml").unlink()


@pytest.mark.parametrize("mark", [OLD_MARK, "# a comment of the operator's"])
def test_keys_of_an_older_version_are_read_and_move_to_a_file_of_their_own(
    mark: str, federation: Federation
) -> None:
    before = read_identities(federation.home)
    _keys_in_the_description(federation, mark)
    assert read_identities(federation.home) == before
    control.register_all(federation)
    control.rotate(federation, "west")
    control.revoke(federation, "north")
    assert keys(federation) == bound(federation)
    assert Federation.read(federation.home) == federation
    assert ("[keys." in (federation.home / "federation.toml").read_text()) == (mark != OLD_MARK)


def test_what_an_operator_wrote_above_the_keys_stays(federation: Federation) -> None:
    path = federation.home / "federation.toml"
    path.write_text(f"# ours\n{path.read_text()}")
    control.register_all(federation)
    assert path.read_text().startswith("# ours\n")
    assert Federation.read(federation.home) == federation


def test_without_a_superlink_the_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(FederationError, match=r"control\.sock: start the superlink"):
        control.register_all(create(tmp_path / "other", ["north"]))


def test_a_federation_of_the_version_before_is_renewed_and_loses_nothing(federation: Federation) -> None:
    control.register_all(federation)
    numbers = control.nodes(federation)
    path = federation.home / "federation.toml"
    path.write_text(
        f'name = "trial"\nhost = "127.0.0.1"\nport = {federation.port}\nsites = ["north", "south", "west"]\n'
    )
    (federation.home / "keys.toml").unlink()
    (federation.superlink / "nodes.json").write_text(json.dumps(numbers))
    (federation.superlink / "start.sh").write_text("exec flower-superlink --host 0.0.0.0\n")
    policy = federation.site("north") / "site.toml"
    policy.write_text(policy.read_text().replace("epochs = 10", "epochs = 3"))
    kept = {name: (federation.site(name) / "key").read_bytes() for name in federation.sites}
    old = Federation.read(federation.home)
    for use in (loopback.up, control.register_all):
        with pytest.raises(FederationError, match="ttpfl flower renew"):
            use(old)
    renew(old)
    assert Federation.read(federation.home) == federation
    assert control.nodes(federation) == numbers
    assert bound(federation) == keys(federation)
    assert "ttpfl flower serve" in (federation.superlink / "start.sh").read_text()
    assert "epochs = 3" in policy.read_text()
    assert {name: (federation.site(name) / "key").read_bytes() for name in federation.sites} == kept
