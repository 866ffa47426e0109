"""Looking after keys, with a stand-in for Flower's command: it knows who is registered, and nothing else."""

import json
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ttpfl.errors import FederationError
from ttpfl.flower import control
from ttpfl.flower.certificates import make_node_key
from ttpfl.flower.create import create
from ttpfl.flower.folder import Federation

FLWR = """#!{python}
import json, sys
from pathlib import Path

kept = Path({kept!r})
command, about = sys.argv[2:4]
words = dict(zip(sys.argv[3:], sys.argv[4:]))
if command == "register" and words["--name"] in {refused!r}:
    print(json.dumps({{"success": False, "error-message": "no such luck"}}))
elif command == "register":
    node = abs(hash(about + words["--name"])) % 10**9
    (kept / str(node)).write_bytes(Path(about).read_bytes())
    print(json.dumps({{"success": True, "node-id": str(node)}}))
else:
    (kept / about).unlink()
    print(json.dumps({{"success": True}}))
"""


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return create(tmp_path / "trial", ["north", "south", "west"])


@pytest.fixture
def superlink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file for each node that is registered, which has its key."""
    (tmp_path / "nodes").mkdir()
    stand_in(tmp_path)
    monkeypatch.setattr(control, "program", lambda name: str(tmp_path / name))
    return tmp_path / "nodes"


def stand_in(tmp_path: Path, *refused: str) -> None:
    script = tmp_path / "flwr"
    script.write_text(FLWR.format(python=sys.executable, kept=str(tmp_path / "nodes"), refused=refused))
    script.chmod(0o755)


def keys(superlink: Path) -> set[bytes]:
    return {path.read_bytes() for path in superlink.iterdir()}


def test_what_was_registered_is_known_also_if_another_was_not(
    federation: Federation, superlink: Path, tmp_path: Path
) -> None:
    stand_in(tmp_path, "south")
    with pytest.raises(FederationError, match=r"not registered: south: .*no such luck"):
        control.register_all(federation)
    known = control.nodes(federation)
    assert set(known) == {"north", "west"}
    assert {str(node) for node in known.values()} == {path.name for path in superlink.iterdir()}
    stand_in(tmp_path)
    assert control.register_all(federation) == ["south"]
    assert set(control.nodes(federation)) == {"north", "south", "west"}


def test_a_site_gives_its_own_new_key(federation: Federation, superlink: Path, tmp_path: Path) -> None:
    control.register_all(federation)
    old = (federation.site("west") / "key.pub").read_bytes()
    make_node_key(tmp_path / "new")
    control.rotate(federation, "west", tmp_path / "new.pub")
    new = (tmp_path / "new.pub").read_bytes()
    assert (federation.site("west") / "key.pub").read_bytes() == new
    assert new in keys(superlink)
    assert old not in keys(superlink)
    assert len(keys(superlink)) == 3


def test_the_new_key_may_be_in_the_sites_folder_already(federation: Federation, superlink: Path) -> None:
    control.register_all(federation)
    make_node_key(federation.site("west") / "key")
    control.rotate(federation, "west", federation.site("west") / "key.pub")
    assert (federation.site("west") / "key.pub").read_bytes() in keys(superlink)
    assert len(keys(superlink)) == 3


@pytest.mark.parametrize("bad", ["missing", "junk", "private", "other kind"])
def test_a_bad_key_does_not_cost_the_one_that_is_there(
    bad: str, federation: Federation, superlink: Path, tmp_path: Path
) -> None:
    control.register_all(federation)
    before, given = keys(superlink), tmp_path / "given"
    if bad == "junk":
        given.write_bytes(b"junk")
    elif bad == "private":
        make_node_key(given)
    elif bad == "other kind":
        key = ed25519.Ed25519PrivateKey.generate().public_key()
        given.write_bytes(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    with pytest.raises((FederationError, FileNotFoundError), match="given"):
        control.rotate(federation, "west", given)
    assert keys(superlink) == before
    assert json.loads((federation.superlink / "nodes.json").read_text()).keys() == set(federation.sites)
