"""One message at a site, in a process of its own: `python -m ttpfl.flower.site_process ADDRESS`.

The archive that came with the message is only hashed. What works is `site_app` of the installed ttpfl.
"""

import sys

from flwr.app import Context, Message
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.telemetry import EventType
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message

from ttpfl.errors import RefusedError
from ttpfl.flower.bundle import check_app, hash_of
from ttpfl.flower.site_app import app
from ttpfl.flower.tasks import log_to_stderr, may_work, reported


def main(address: str) -> None:
    """Fetch the message from the supernode, answer it, and hand the answer over."""
    log_to_stderr()
    retry = make_simple_http_retry_invoker()
    client = RuntimeHttpClient.from_server_address(
        address, insecure=True, root_certificates=None, interceptors=may_work(), retry_invoker=retry
    )
    with reported(client, retry, EventType.FLWR_CLIENTAPP_RUN_LEAVE):
        message, context, _, fab = pull_task_input(client)
        push_message(client, answer(fab.content, message, context), context)


def answer(archive: bytes, message: Message, context: Context) -> Message:
    """The installed app's answer; that it was refused, if the message is for another app."""
    try:
        check_app(archive)
    except RefusedError as refusal:
        return app.refuse(message, context, refusal, app_hash=hash_of(archive))
    return app(message, context)


if __name__ == "__main__":
    main(*sys.argv[1:])
