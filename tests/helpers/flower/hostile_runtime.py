"""An attacker in the supernode's place, whose message has the installed app and a configuration of theirs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

import torch
from flwr.app import Context, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import context_to_proto, fab_to_proto, message_to_proto
from flwr.proto.message_pb2 import PullObjectRequest, PullObjectResponse
from flwr.proto.run_pb2 import Run
from flwr.proto.runtime_pb2 import PullAppMessagesResponse, PullTaskInputResponse, SendTaskHeartbeatResponse
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from google.protobuf.message import Message as Said

from tests.helpers.flower import in_process  # noqa: F401  (who signs messages)
from ttpfl.flower.bundle import bundle, hash_of
from ttpfl.flower.messages import ModelCard, model_records
from ttpfl.flower.over_socket import listen


@contextmanager
def hostile_runtime(path: Path, site: Path, command: str) -> Iterator[list[str]]:
    """At `path`: says that the site's file is `site`, and that a shell with `command` builds the model.

    Gives the paths of what was asked for.
    """
    card = ModelCard("a" * 64, "f", {"name": "subprocess:getoutput", "cmd": command})
    message = Message(model_records(card, {"w": torch.zeros(1)}), 1, "query.model")
    message.metadata.__dict__.update(_run_id=1, _src_node_id=1, _message_id=message.object_id)
    tree = get_object_tree(message)
    objects = {name: found.deflate() for name, found in get_all_nested_objects(message).items()}
    context = Context(1, 1, {"site": str(site)}, RecordDict(), {})
    asked: list[str] = []

    def reply(question: str, body: bytes) -> Said | None:
        if question == "pull-task-input":
            app = fab_to_proto(Fab(hash_of(bundle()), bundle(), {}))
            return PullTaskInputResponse(
                context=context_to_proto(context), run=Run(run_id=1), fab=app, task_id=1
            )
        if question == "pull-messages":
            sent = message_to_proto(remove_content_from_message(message))
            return PullAppMessagesResponse(messages_list=[sent], message_object_trees=[tree])
        if question == "pull-object":
            content = objects[PullObjectRequest.FromString(body).object_id]
            return PullObjectResponse(object_found=True, object_available=True, object_content=content)
        return SendTaskHeartbeatResponse(success=True) if "heartbeat" in question else None

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            asked.append(self.path.rpartition("/")[2])
            said = reply(asked[-1], body)
            content = b"" if said is None else said.SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingUnixStreamServer(str(path), Handler, bind_and_activate=False) as server:
        server.socket.close()
        server.socket = listen(path)  # which takes long paths, too
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield asked
        finally:
            server.shutdown()
