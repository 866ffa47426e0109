"""The process of one message at a site: `python -m ttpfl.flower.site_process FOLDER`.

The archive that came with the message is only hashed; `site_app` of the installed ttpfl does the work. It
reads `site.toml` in the folder that this process was started for: a message cannot name files.
"""

import sys
from pathlib import Path

from flwr.app import Message
from flwr.supercore.telemetry import EventType
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message

from ttpfl.errors import RefusedError
from ttpfl.flower.bundle import check_app, hash_of
from ttpfl.flower.site import runtime_socket
from ttpfl.flower.site_app import app, refuse
from ttpfl.flower.tasks import task_client


def main(home: str) -> None:
    """Fetch the message from the supernode, and reply to it."""
    folder = Path(home)
    with task_client(runtime_socket(folder), EventType.FLWR_CLIENTAPP_RUN_LEAVE) as (client, _):
        message, context, _, fab = pull_task_input(client)
        push_message(client, reply_to(folder / "site.toml", fab.content, message), context)


def reply_to(file: Path, archive: bytes, message: Message) -> Message:
    """The reply of the installed app; a refusal if the message is for another app."""
    try:
        check_app(archive)
    except RefusedError as refusal:
        return refuse(file, message, refusal, app_hash=hash_of(archive))
    return app(file, message)


if __name__ == "__main__":
    main(*sys.argv[1:])
