"""The only door of a superlink to the outside: sites may fetch tasks and answer them, and nothing else.

Flower serves everything on one port: what sites need (`/v1/fleet`), what starts runs and registers keys
(`/v1/control`), and what apps use (`/v1/runtime`). This lets through the first alone. It also compares who an
answer says it is from with who sends it, which Flower does not.
"""

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from flwr.proto.fleet_pb2 import PushMessagesRequest
from google.protobuf.message import DecodeError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = re.compile(r"/v1/fleet/[a-z-]+")
ANSWER = "/v1/fleet/push-messages"
LARGEST = 16 * 2**20
"""Bytes of an answer without its arrays, which travel one by one."""


class FleetGate:
    """An ASGI application in front of Flower's."""

    def __init__(self, superlink: Application) -> None:
        self._superlink = superlink

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a site's request, or refuse it."""
        if scope["type"] != "http" or not OPEN.fullmatch(scope["path"]):
            await _refuse(scope, send, 404)
        elif scope["path"] != ANSWER:
            await self._superlink(scope, receive, send)
        elif (body := await _body(receive)) is None or not is_own_answer(body):
            await _refuse(scope, send, 403)
        else:
            await self._superlink(scope, _again(body, receive), send)


def is_own_answer(body: bytes) -> bool:
    """Whether all messages say that they are from the node that sends them, whose key Flower checks."""
    try:
        request = PushMessagesRequest.FromString(body)
    except DecodeError:
        return False
    return all(message.metadata.src_node_id == request.node.node_id for message in request.messages_list)


async def _body(receive: Receive) -> bytes | None:
    parts, size = [], 0
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return None  # gone before it had said everything
        parts.append(event.get("body", b""))
        size += len(parts[-1])
        if size > LARGEST:
            return None
        if not event.get("more_body"):
            return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    events = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def replay() -> MutableMapping[str, Any]:
        return next(events, None) or await receive()

    return replay


async def _refuse(scope: Scope, send: Send, status: int) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    elif scope["type"] == "http":
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})
