"""One message at a site, in a process of its own: `python -m ttpfl.flower.site_process FOLDER`.

The archive that came with the message is only hashed. What works is `site_app` of the installed ttpfl, by the
`site.toml` of the folder that this process was started for: nothing that comes with a message names files.
"""

import sys
from pathlib import Path

from flwr.app import Message
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.telemetry import EventType
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message

from ttpfl.errors import RefusedError
from ttpfl.flower.bundle import check_app, hash_of
from ttpfl.flower.over_socket import client_over
from ttpfl.flower.site import runtime_socket
from ttpfl.flower.site_app import app, refuse
from ttpfl.flower.tasks import log_to_stderr, may_work, reported


def main(home: str) -> None:
    """Fetch the message from the supernode, answer it, and hand the answer over."""
    log_to_stderr()
    folder, retry = Path(home), make_simple_http_retry_invoker()
    client = client_over(RuntimeHttpClient, runtime_socket(folder), may_work(), retry)
    with reported(client, retry, EventType.FLWR_CLIENTAPP_RUN_LEAVE):
        message, context, _, fab = pull_task_input(client)
        push_message(client, answer(folder / "site.toml", fab.content, message), context)


def answer(file: Path, archive: bytes, message: Message) -> Message:
    """The installed app's answer; that it was refused, if the message is for another app."""
    try:
        check_app(archive)
    except RefusedError as refusal:
        return refuse(file, message, refusal, app_hash=hash_of(archive))
    return app(file, message)


if __name__ == "__main__":
    main(*sys.argv[1:])
