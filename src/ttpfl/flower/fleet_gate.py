"""A superlink's only entrance from the network: sites can fetch tasks and reply to them, and nothing else.

Flower serves three APIs on one port: for sites (`/v1/fleet`), for starting runs and registering keys
(`/v1/control`), and for apps (`/v1/runtime`). The gate passes on the first only, and no request above a size
limit, since Flower checks keys only after it has read a whole request. It also checks that a reply comes from
the node that it names as its source, which Flower does not.
"""

import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from flwr.proto.fleet_pb2 import PushMessagesRequest
from google.protobuf.message import DecodeError

from ttpfl.util.limits import REQUEST

log = logging.getLogger("ttpfl")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = re.compile(r"/v1/fleet/[a-z-]+")
REPLY = "/v1/fleet/push-messages"


class FleetGate:
    """An ASGI application in front of Flower's."""

    def __init__(self, superlink: Application) -> None:
        self._superlink = superlink
        self._largest = REQUEST.value

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a site's request, or refuse it."""
        if scope["type"] != "http" or not OPEN.fullmatch(scope["path"]):
            await _refuse(scope, send, 404)
        elif (body := await _body(scope, receive, self._largest)) is None:
            await _refuse(scope, send, 413)
        elif scope["path"] == REPLY and not is_from_sender(body):
            await _refuse(scope, send, 403)
        else:
            await self._superlink(scope, _replayed(body, receive), send)


def is_from_sender(body: bytes) -> bool:
    """Whether all messages name as their source the node that sends them, whose key Flower checks."""
    try:
        request = PushMessagesRequest.FromString(body)
    except DecodeError:
        return False
    sender = request.node.node_id
    for message in request.messages_list:
        if (source := message.metadata.src_node_id) != sender:
            log.warning("refused: node %d sent a reply that claims to be from node %d", sender, source)
            return False
    return True


async def _body(scope: Scope, receive: Receive, largest: int) -> bytes | None:
    """The whole body, which Flower would also keep in memory; None if it is too large or incomplete."""
    if _declared(scope) > largest:
        return None
    parts, size = [], 0
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return None  # disconnected before the end
        parts.append(event.get("body", b""))
        size += len(parts[-1])
        if size > largest:
            return None
        if not event.get("more_body"):
            return b"".join(parts)


def _declared(scope: Scope) -> int:
    """The declared size in bytes; 0 if there is none."""
    length = dict(scope["headers"]).get(b"content-length", b"")
    return int(length) if length.isdigit() else 0


def _replayed(body: bytes, receive: Receive) -> Receive:
    events = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def replay() -> MutableMapping[str, Any]:
        return next(events, None) or await receive()

    return replay


async def _refuse(scope: Scope, send: Send, status: int) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    elif scope["type"] == "http":
        await send({"type": "http.response.start", "status": status, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": b""})
