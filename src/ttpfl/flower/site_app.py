"""The app at a site: every message is logged, checked and replied to; the reply is logged before it leaves.

Each message has its own process, so torch is imported only where there is something to compute.
"""

import logging
from pathlib import Path

from flwr.app import Error, Message, RecordDict

from ttpfl.errors import RefusedError
from ttpfl.flower import messages
from ttpfl.flower.messages import FAILED, LACKING, MODEL, PING, REFUSED, TRAIN
from ttpfl.flower.site import Site

log = logging.getLogger("ttpfl")


def app(file: Path, message: Message) -> Message:
    """Reply to a message of any type, following `site.toml`; only the kind of an error leaves the site.

    This is not a Flower ClientApp. That would send the text of any exception to the server, and would raise
    for messages of unknown types before they could be logged.
    """
    try:
        return _reply(Site.read(file), message)
    except Exception as error:  # in site.toml or the audit log, so it cannot be logged there
        return _failed(message, error)


def refuse(file: Path, message: Message, refusal: RefusedError, **more: str) -> Message:
    """Refuse a message that is not for this app. It is logged like all others, together with `more`."""
    try:
        audit = Site.read(file).audit
        audit.note("in", message, **more)
        reply = Message(Error(REFUSED, f"refused: {refusal}"), reply_to=message)
        audit.note("out", reply)
        return reply
    except Exception as error:
        return _failed(message, error)


def _failed(message: Message, error: Exception) -> Message:
    log.exception("cannot reply to a message of the type %r", message.metadata.message_type)
    return Message(_failure(error, "the log of its Flower process"), reply_to=message)


def _reply(site: Site, message: Message) -> Message:
    site.audit.note("in", message)
    details = {}
    try:
        content = HANDLERS.get(message.metadata.message_type, _unknown)(site, message)
    except RefusedError as refusal:
        content = Error(REFUSED, f"refused: {refusal}")
        if refusal.__cause__ is not None:
            details = {"because": _text(refusal.__cause__)}
    except Exception as error:
        # The text may name files or show data: it stays here, and only the kind of error leaves.
        content, details = _failure(error, "the site's audit log"), {"failed": _text(error)}
    reply = Message(content, reply_to=message)
    site.audit.note("out", reply, **details)
    return reply


def _task(site: Site, message: Message) -> RecordDict | Error:
    task = messages.read_task(message.content)
    settings = site.policy.check(task)
    if not site.model_file(task.model).exists():
        return Error(LACKING, f"lacks the model {task.model}")
    from ttpfl.flower.site_work import work_on

    vectors = messages.read_vectors(message.content, site.policy.largest_model)
    return messages.reply_records(task, *work_on(site, task, settings, *vectors))


def _model(site: Site, message: Message) -> RecordDict | Error:
    from ttpfl.flower.model_store import keep

    policy = site.policy
    card, state = messages.read_model(message.content, policy.largest_model, policy.check_model)
    keep(site.model_file(card.hash), card, state, policy.largest_model, policy.most_models)
    return RecordDict()


def _ping(site: Site, message: Message) -> RecordDict:
    return RecordDict()  # its arrival is enough: see `ttpfl.flower.replies.Exchange.ping`


def _unknown(site: Site, message: Message) -> RecordDict | Error:
    kind, known_kinds = message.metadata.message_type, ", ".join(HANDLERS)
    raise RefusedError(f"the message has the type {kind!r}, not one of {known_kinds}")


HANDLERS = {TRAIN: _task, MODEL: _model, PING: _ping}


def _failure(error: Exception, where: str) -> Error:
    return Error(FAILED, f"failed ({type(error).__name__}): see {where}")


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
