"""The only door of a superlink to the outside: sites may fetch tasks and answer them, and nothing else.

Flower serves everything on one port: what sites need (`/v1/fleet`), what starts runs and registers keys
(`/v1/control`), and what apps use (`/v1/runtime`). This lets through the first alone, and no request above a
limit, since Flower checks keys only once it holds all of it. It also compares who an answer says it is from
with who sends it, which Flower does not.
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
ANSWER = "/v1/fleet/push-messages"


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
        elif scope["path"] == ANSWER and not is_own_answer(body):
            await _refuse(scope, send, 403)
        else:
            await self._superlink(scope, _again(body, receive), send)


def is_own_answer(body: bytes) -> bool:
    """Whether all messages say that they are from the node that sends them, whose key Flower checks."""
    try:
        request = PushMessagesRequest.FromString(body)
    except DecodeError:
        return False
    sender = request.node.node_id
    for message in request.messages_list:
        if (source := message.metadata.src_node_id) != sender:
            log.warning("refused: an answer that node %d sends says that it is from node %d", sender, source)
            return False
    return True


async def _body(scope: Scope, receive: Receive, largest: int) -> bytes | None:
    """All of it, as Flower would hold it as well; None if it is too large."""
    if _declared(scope) > largest:
        return None
    parts, size = [], 0
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return None  # gone before it had said everything
        parts.append(event.get("body", b""))
        size += len(parts[-1])
        if size > largest:
            return None
        if not event.get("more_body"):
            return b"".join(parts)


def _declared(scope: Scope) -> int:
    """The bytes that the sender says will come; 0 if it does not say."""
    said = dict(scope["headers"]).get(b"content-length", b"")
    return int(said) if said.isdigit() else 0


def _again(body: bytes, receive: Receive) -> Receive:
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
