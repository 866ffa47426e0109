"""The app at a site: a message comes, is noted, checked and answered; the answer is noted and goes.

Every message starts a process of its own, so torch is imported only where there is something to compute.
"""

import logging
from pathlib import Path

from flwr.app import Error, Message, RecordDict

from ttpfl.errors import RefusedError
from ttpfl.flower.messages import (
    FAILED,
    LACKING,
    MODEL,
    NUDGE,
    REFUSED,
    TRAIN,
    answer_records,
    read_model,
    read_task,
    read_vectors,
)
from ttpfl.flower.site import Site

log = logging.getLogger("ttpfl")


def app(file: Path, message: Message) -> Message:
    """A site's reply to a message of whatever type, by its `site.toml`; of an error only its kind.

    Not a ClientApp of Flower, which would send the text of whatever escapes from here to the server, and also
    raises for messages of a type that it knows no function for, before anybody could note them.
    """
    try:
        return _answered(Site.read(file), message)
    except Exception as error:  # in site.toml, or in writing the audit log: there is nowhere to note it
        return _unanswered(message, error)


def refuse(file: Path, message: Message, refusal: RefusedError, **more: str) -> Message:
    """The reply to a message that is not for this app, which is noted like all others, with `more`."""
    try:
        audit = Site.read(file).audit
        audit.note("in", message, **more)
        reply = Message(Error(REFUSED, f"refused: {refusal}"), reply_to=message)
        audit.note("out", reply)
        return reply
    except Exception as error:
        return _unanswered(message, error)


def _unanswered(message: Message, error: Exception) -> Message:
    log.exception("a message of the type %r is not answered", message.metadata.message_type)
    return Message(_failure(error, "the log of its Flower process"), reply_to=message)


def _answered(site: Site, message: Message) -> Message:
    site.audit.note("in", message)
    trouble = {}
    try:
        said = HANDLERS.get(message.metadata.message_type, _unknown)(site, message)
    except RefusedError as refusal:
        said = Error(REFUSED, f"refused: {refusal}")
        if refusal.__cause__ is not None:
            trouble = {"because": _text(refusal.__cause__)}
    except Exception as error:
        # What went wrong may name files or show data: that stays here, and only the kind of error goes out.
        said, trouble = _failure(error, "the site's audit log"), {"failed": _text(error)}
    reply = Message(said, reply_to=message)
    site.audit.note("out", reply, **trouble)
    return reply


def _task(site: Site, message: Message) -> RecordDict | Error:
    task = read_task(message.content)
    settings = site.policy.check(task)
    if not site.model_file(task.model).exists():
        return Error(LACKING, f"lacks the model {task.model}")
    from ttpfl.flower.site_work import work_on

    return answer_records(
        task, *work_on(site, task, settings, *read_vectors(message.content, site.policy.largest_model))
    )


def _model(site: Site, message: Message) -> RecordDict | Error:
    from ttpfl.flower.model_store import keep

    policy = site.policy
    card, state = read_model(message.content, policy.largest_model, policy.check_model)
    keep(site.model_file(card.hash), card, state, policy.largest_model, policy.most_models)
    return RecordDict()


def _nudge(site: Site, message: Message) -> RecordDict:
    return RecordDict()  # that it came is enough: see `ttpfl.flower.replies.Exchange.nudge`


def _unknown(site: Site, message: Message) -> RecordDict | Error:
    kind, known = message.metadata.message_type, ", ".join(HANDLERS)
    raise RefusedError(f"the message has the type {kind!r}, not one of {known}")


HANDLERS = {TRAIN: _task, MODEL: _model, NUDGE: _nudge}


def _failure(error: Exception, where: str) -> Error:
    return Error(FAILED, f"failed ({type(error).__name__}): {where} says more")


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
