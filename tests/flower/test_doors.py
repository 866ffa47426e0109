"""What gets through to a superlink, and which apps and replies are accepted, without a network."""

import asyncio
import hashlib
import io
import json
import os
import stat
import zipfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import Array, Message, RecordDict
from flwr.cli.config_utils import get_fab_metadata
from flwr.common.config import get_fab_config
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import Metadata
from flwr.proto.node_pb2 import Node, NodeInfo
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.superlink.main import create_app

from tests.helpers.flower.in_process import make_site
from ttpfl.errors import RefusedError
from ttpfl.flower.bundle import bundle, check_app, hash_of
from ttpfl.flower.fleet_gate import FleetGate
from ttpfl.flower.identity import Identity, fingerprint_of, recognised
from ttpfl.flower.messages import REFUSED
from ttpfl.flower.over_socket import is_served, listen
from ttpfl.flower.site_process import reply_to
from ttpfl.util.limits import REQUEST


def ask(
    path: str, body: bytes = b"", kind: str = "http", declared: int | None = None
) -> tuple[int | None, bytes | None]:
    """The status that the gate gives, and the body that the superlink behind it gets; None: nothing."""
    got: list[bytes] = []
    said: list[MutableMapping[str, Any]] = []
    parts = [body[:10], body[10:]]

    async def superlink(scope: Any, receive: Any, send: Any) -> None:
        whole = b""
        while (event := await receive())["type"] == "http.request":
            whole += event["body"]
            if not event.get("more_body"):
                break
        got.append(whole)
        await send({"type": "http.response.start", "status": 200})

    async def receive() -> MutableMapping[str, Any]:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(event: MutableMapping[str, Any]) -> None:
        said.append(event)

    headers = [] if declared is None else [(b"content-length", str(declared).encode())]
    scope = {"type": kind, "path": path, "headers": headers}
    asyncio.run(FleetGate(superlink)(scope, receive, send))
    return said[0].get("status"), got[0] if got else None


def routes() -> set[str]:
    return set(create_app().openapi()["paths"])


def test_of_all_that_flower_serves_only_the_fleet_api_gets_through() -> None:
    served = routes()
    assert {"/v1/control/start-run", "/v1/runtime/acquire-task", "/v1/fleet/pull-messages"} <= served
    for path in sorted(served | {"/docs", "/openapi.json", "/", "/v1/fleet", "/v1/fleet/", "/v1/fleet/../x"}):
        opened = ask(path)[1] is not None
        assert opened == (path.startswith("/v1/fleet/") and path in served), path


@pytest.mark.parametrize(
    "path",
    [
        "/v1/fleet/../control/start-run",
        "/v1/fleet/x/../../control/start-run",
        "/v1/fleet//control",
        "//v1/fleet/get-run",
        "/V1/FLEET/get-run",
        "/v1/fleet/get-run\n",
        "/v1/fleet/%2e%2e/control/start-run",
    ],
)
def test_no_way_around(path: str) -> None:
    assert ask(path) == (404, None)


def test_other_protocols_are_closed() -> None:
    assert ask("/v1/fleet/get-run", kind="websocket") == (None, None)


def said_by(sender: int, *sources: int) -> bytes:
    messages = [ProtoMessage(metadata=Metadata(src_node_id=source)) for source in sources]
    return PushMessagesRequest(node=Node(node_id=sender), messages_list=messages).SerializeToString()


def test_no_node_can_reply_for_another(caplog: pytest.LogCaptureFixture) -> None:
    """Flower checks that the sender has its key, but not that it is the source that the reply names."""
    path = "/v1/fleet/push-messages"
    own = said_by(7, 7)
    assert ask(path, own) == (200, own)
    for body in (said_by(7, 8), said_by(7, 7, 8), b"\xff\xff junk"):
        assert ask(path, body) == (403, None)
    said = "refused: node 7 sent a reply that claims to be from node 8"
    assert [record.getMessage() for record in caplog.records if record.name == "ttpfl"] == [said, said]


def test_no_request_above_the_limit_gets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any path: Flower would hold all of it before it looks at the key."""
    monkeypatch.setenv("TTPFL_MAX_REQUEST_BYTES", "100")
    fleet = sorted(path for path in routes() if path.startswith("/v1/fleet/") and "push-messages" not in path)
    assert "/v1/fleet/push-object" in fleet
    for path in fleet:
        assert ask(path, b"x" * 100, declared=100) == (200, b"x" * 100)
        assert ask(path, b"x" * 101) == (413, None)
        assert ask(path, declared=101) == (413, None)  # without a look at what comes
    assert ask("/v1/fleet/push-messages", said_by(7, *[7] * 50)) == (413, None)


def test_arrays_of_any_size_travel_in_pieces_below_the_limit() -> None:
    array = Array(np.random.default_rng(0).random(3 * 2**20))  # 24 MiB
    pieces = get_all_nested_objects(array).values()
    assert max(len(piece.deflate()) for piece in pieces) < REQUEST.default / 2


def test_the_app_has_no_code_and_is_one_that_flower_takes() -> None:
    archive = bundle()
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        assert file.namelist() == ["pyproject.toml", ".info/CONTENT"]
    assert get_fab_metadata(archive)[0] == "ttpfl/ttpfl-federation"
    assert set(get_fab_config(archive)["tool"]["flwr"]["app"]["config"]) == {"order", "token"}


def test_the_apps_hash_is_the_same_on_every_machine() -> None:
    """A literal: a change of the app is another app, which sites with an older ttpfl refuse."""
    assert hash_of(bundle()) == "2fb0c97b95bafaced629f53dd6a4e60b51829e35bca1097ca771395788911d60"


def test_only_the_installed_app_is_taken() -> None:
    check_app(bundle())
    for archive in (b"", bundle() + b"\0", bundle()[:-1]):
        with pytest.raises(RefusedError, match="is not that of the installed ttpfl"):
            check_app(archive)


def test_a_message_of_another_app_is_refused_and_noted(tmp_path: Path) -> None:
    site = make_site(tmp_path, "north", 0)
    message = Message(RecordDict(), 1, "query.model")
    message.metadata.__dict__["_message_id"] = message.object_id
    reply = reply_to(site, b"another", message)
    assert reply.error.code == REFUSED
    assert "is not that of the installed ttpfl" in reply.error.reason
    came, went = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert (came["direction"], came["app_hash"]) == ("in", hashlib.sha256(b"another").hexdigest())
    assert (went["direction"], went["error"]) == ("out", reply.error.reason)
    # What cannot be noted is refused all the same, without a word about why it cannot.
    (tmp_path / "audit.jsonl").unlink()
    (tmp_path / "audit.jsonl").mkdir()
    reply = reply_to(site, b"another", message)
    assert reply.error.reason == "failed (IsADirectoryError): see the log of its Flower process"


@pytest.mark.parametrize("name", ["short", "x" * 150])
def test_the_socket_is_for_its_user_alone_wherever_it_is(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    path = tmp_path / name / "control.sock"
    before = os.umask(0)
    try:
        assert not is_served(path)
        listen(path).close()  # what a killed process leaves is no hindrance
        assert not is_served(path)
        opened = len(os.listdir("/proc/self/fd"))
        with listen(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert all(is_served(path) for _ in range(20))
            assert len(os.listdir("/proc/self/fd")) <= opened + 2  # not one for every question
    finally:
        os.umask(before)


def key() -> bytes:
    public = ec.generate_private_key(ec.SECP384R1()).public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def test_a_site_is_its_key_and_its_number() -> None:
    own, other = key(), key()
    identities = {"north": Identity(fingerprint_of(own), 7), "south": Identity(fingerprint_of(other))}
    north = NodeInfo(node_id=7, name="north", public_key=own)
    impostor = NodeInfo(node_id=8, name="north", public_key=other)
    assert recognised([north], identities) == ({"north": 7}, {})
    assert recognised([impostor, north], identities) == ({"north": 7}, {})  # in any order
    assert recognised([north, impostor], identities) == ({"north": 7}, {})
    for node in (
        impostor,
        NodeInfo(node_id=8, name="north", public_key=own),
        NodeInfo(node_id=7, name="north", public_key=other),
        NodeInfo(node_id=7, name="north", public_key=b"junk"),
        NodeInfo(node_id=7, name="north", public_key=b"ssh-unknown AAAA"),
    ):
        known, strangers = recognised([node], identities)
        assert known == {}
        assert strangers["north"].startswith(f"node {node.node_id} calls itself north, but its key is not")
    registered_by_nobody = NodeInfo(node_id=9, name="south", public_key=other)
    assert recognised([registered_by_nobody], identities)[0] == {}
    assert recognised([NodeInfo(node_id=9, name="else", public_key=own)], identities) == ({}, {})
