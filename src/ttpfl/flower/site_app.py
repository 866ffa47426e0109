"""The Flower ClientApp: a message comes, is noted, checked and answered; the answer is noted and goes.

Every message starts a process of its own, so torch is imported only where there is something to compute.
"""

from collections.abc import Callable
from pathlib import Path

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from ttpfl.errors import RefusedError
from ttpfl.flower.messages import (
    FAILED,
    LACKING,
    MODEL,
    REFUSED,
    TRAIN,
    answer_records,
    read_model,
    read_task,
    read_vectors,
)
from ttpfl.flower.site import Site

app = ClientApp()


@app.train(TRAIN.split(".")[1])
def train(message: Message, context: Context) -> Message:
    """Work on a task."""
    return _answered(message, context, _task)


@app.query(MODEL.split(".")[1])
def model(message: Message, context: Context) -> Message:
    """Keep a model."""
    return _answered(message, context, _model)


def _task(site: Site, message: Message) -> RecordDict | Error:
    task = read_task(message.content)
    settings = site.policy.check(task)
    if not site.model_file(task.model).exists():
        return Error(LACKING, f"lacks the model {task.model}")
    from ttpfl.flower.site_work import work_on

    return answer_records(task, *work_on(site, task, settings, *read_vectors(message.content)))


def _model(site: Site, message: Message) -> RecordDict | Error:
    from ttpfl.flower.model_store import keep

    card, state = read_model(message.content)
    site.policy.check_model(card)
    keep(site.model_file(card.hash), card, state, site.policy.largest_model)
    return RecordDict()


def _answered(
    message: Message, context: Context, handle: Callable[[Site, Message], RecordDict | Error]
) -> Message:
    site = Site.read(Path(str(context.node_config["site"])))
    site.audit.note("in", message)
    trouble = {}
    try:
        said = handle(site, message)
    except RefusedError as refusal:
        said = Error(REFUSED, f"refused: {refusal}")
    except Exception as error:
        # What went wrong may name files or show data: that stays here, and only the kind of error goes out.
        said = Error(FAILED, f"failed ({type(error).__name__}): the site's audit log says more")
        trouble = {"failed": f"{type(error).__name__}: {error}"}
    reply = Message(said, reply_to=message)
    site.audit.note("out", reply, **trouble)
    return reply
