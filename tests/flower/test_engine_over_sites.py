"""The engine over sites, without a network: the results of the local engine, and a reason for every fault."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord
from flwr.common.constant import ErrorCode

from tests.helpers.flower.in_process import (
    BUILD,
    NAMES,
    Clock,
    InProcessGrid,
    Node,
    begin_model,
    largest_difference,
    local_clients,
    make_site,
    make_sites,
)
from ttpfl.core.metric_sums import MetricSumsByName
from ttpfl.core.network import weights_hash
from ttpfl.core.rates import Rates
from ttpfl.errors import FederationError, ModelError
from ttpfl.federation import LearnSettings, TrainSettings, epsilon_of_rates, learn, train
from ttpfl.federation.privacy.accountant import epsilon_of
from ttpfl.flower.engine import Assignment, GridEngine
from ttpfl.flower.messages import Task, read_reply, reply_records
from ttpfl.flower.model_store import card_of
from ttpfl.flower.replies import Counts
from ttpfl.flower.run_spec import RunSpec
from ttpfl.flower.server_app import LARGEST_SLOPE, RemoteSite, carry_out
from ttpfl.flower.timeouts import Timeouts
from ttpfl.models import build, load_model, save_model
from ttpfl.util.locks import run_died, run_lock

LEARN = LearnSettings(rounds=2, batch_size=6, lr=5.0, workers=0)
SEARCH = LearnSettings(batch_size=6, prior=True, workers=0, check=False)  # three sites show little
PATIENT = Timeouts(deadline=60, longest=600)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_sites(tmp_path_factory.mktemp("sites"))


def learned(
    grid: InProcessGrid,
    tmp_path: Path,
    settings: LearnSettings = LEARN,
    timeouts: Timeouts = PATIENT,
    **more: Any,
) -> Any:
    """Learn rates through the engine: the result of `learn`, the engines and the clock."""
    model, clock = begin_model(tmp_path / "model.safetensors"), Clock()
    grid.clock = clock
    engines = []

    def make(length: int, dtype: torch.dtype) -> GridEngine:
        rates = {"granularity": "tensor", "only": None, "variance": "log" if settings.searches else "linear"}
        asked = Assignment("learn", len(grid.sites), asdict(settings), card_of(model, BUILD), rates, 1000.0)
        engine = GridEngine(
            grid,  # type: ignore[arg-type]
            asked,
            model.state_dict(),
            timeouts,
            length,
            dtype,
            clock,
            clock.sleep,
        )
        engines.append(engine)
        return engine

    clients = [RemoteSite(name) for name in grid.sites]
    return learn(model, clients, settings, engine=make, **more), engines, clock


def test_rates_are_those_of_the_local_engine(sites: dict[str, Path], tmp_path: Path) -> None:
    grid = InProcessGrid(sites)
    model = begin_model(tmp_path / "model.safetensors")
    spec = RunSpec(
        *("learn", str(tmp_path / "model.safetensors"), str(tmp_path / "run"), NAMES, asdict(LEARN)),
        timeouts=asdict(Timeouts(deadline=3600.0, quiet=3600.0)),  # no pings, however busy the machine is
    )
    spec.write()
    with run_lock(tmp_path / "run", "token"):
        carry_out(RunSpec.read(tmp_path / "run" / "order.json"), grid)  # type: ignore[arg-type]
        assert not run_died(tmp_path / "run", "token")
    assert run_died(tmp_path / "run", "token")  # the run's own lock on its folder does not wipe out this one
    found = Rates.load(tmp_path / "run" / "rates.safetensors")
    local = learn(model, local_clients(sites), LEARN)
    assert largest_difference(found.values, local.rates.values) < 1e-6
    assert float(local.rates.values.abs().max()) > 1e-3  # there was something to compare
    # The model went to each site once, on its own; then only rates.
    kinds = [message.metadata.message_type for message in grid.sent]
    assert kinds == ["train.task"] * 3 + ["query.model"] * 3 + ["train.task"] * 6
    history = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    losses = [[record["validation_loss"] for record in records] for records in (history, local.history)]
    assert losses[0] == pytest.approx(losses[1])


def test_a_budget_over_sites(sites: dict[str, Path], tmp_path: Path) -> None:
    model, settings = begin_model(tmp_path / "model.safetensors"), replace(SEARCH, rounds=3, budget=2.0)
    local = learn(model, local_clients(sites), settings).rates
    spec = RunSpec(
        "learn",
        str(tmp_path / "model.safetensors"),
        out=str(tmp_path / "run"),
        sites=NAMES,
        settings=asdict(settings),
    )
    carry_out(spec, InProcessGrid(sites))  # type: ignore[arg-type]
    found = Rates.load(tmp_path / "run" / "rates.safetensors")
    assert found.only == local.only == "forward"
    assert found.head == local.head
    assert found.names == local.names
    assert largest_difference(found.values, local.values) < 1e-6


def test_a_search_over_sites_is_that_of_the_local_engine(sites: dict[str, Path], tmp_path: Path) -> None:
    model = begin_model(tmp_path / "model.safetensors")
    local = learn(model, local_clients(sites), SEARCH)
    assert len(local.history) > 3  # there is something to compare
    make = partial(
        RunSpec, "learn", str(tmp_path / "model.safetensors"), sites=NAMES, settings=asdict(SEARCH)
    )
    replies: list[Message] = []

    def kept(name: str, reply: Message) -> Message:
        replies.append(reply)
        return reply

    carry_out(make(out=str(tmp_path / "whole")), InProcessGrid(sites, fault=kept))  # type: ignore[arg-type]
    # A site answers with a slope in each rate, its mean prediction and three numbers.
    content = replies[-1].content
    assert content["arrays"]["vector"].numpy().shape == (len(local.rates.values) + len(local.rates.prior),)
    assert content["metrics"].keys() == {f"validation.{name}" for name in ("samples", "loss", "right")}

    def die(name: str, reply: Message) -> Message:
        if _round(reply) == 2:
            raise ConnectionError("the server app was killed")
        return reply

    with pytest.raises(ConnectionError):
        carry_out(make(out=str(tmp_path / "run")), InProcessGrid(sites, fault=die))  # type: ignore[arg-type]
    carry_out(make(out=str(tmp_path / "run")), InProcessGrid(sites))  # type: ignore[arg-type]
    whole, resumed = (Rates.load(tmp_path / run / "rates.safetensors") for run in ("whole", "run"))
    assert torch.equal(whole.values, resumed.values)
    assert whole.variance == "log"
    assert whole.prior == pytest.approx(local.rates.prior, rel=1e-5)
    assert len(whole.prior) == 10
    assert largest_difference(whole.values, local.rates.values) < 1e-6
    assert float(local.rates.values.abs().max()) > 1e-3
    assert whole.learned["checked"]["stopped"] == local.rates.learned["checked"]["stopped"]


@pytest.mark.parametrize("strict", [1, 3])
def test_sites_that_refuse_large_rates_do_not_end_a_search(
    sites: dict[str, Path], tmp_path: Path, strict: int
) -> None:
    """One of three is left out of rounds with larger rates; all of them get smaller ones."""
    free = search_over(InProcessGrid(sites), tmp_path / "free")
    limit = float(free.values.abs().max()) / 3
    policy = f"[policy]\nlargest_rate = {limit}\n"
    strict_sites = {
        name: make_site(tmp_path / name, name, number, policy if number < strict else "")
        for number, name in enumerate(NAMES)
    }
    found = search_over(InProcessGrid(strict_sites), tmp_path / "strict")
    checked = found.learned["checked"]
    assert checked["adapted_loss"] < checked["plain_loss"]
    if strict == 3:
        assert 0 < found.values.abs().max() <= limit


def search_over(grid: InProcessGrid, folder: Path) -> Rates:
    folder.mkdir()
    begin_model(folder / "model.safetensors")
    paths = (str(folder / "model.safetensors"), str(folder / "run"))
    carry_out(RunSpec("learn", *paths, NAMES, asdict(SEARCH)), grid)  # type: ignore[arg-type]
    return Rates.load(folder / "run" / "rates.safetensors")


def test_a_search_refuses_a_reply_without_its_loss(
    sites: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    result, _, _ = learned(InProcessGrid(sites, fault=poisoned(metrics())), tmp_path, SEARCH)
    assert result.history[0]["failed"] == ["south"]
    assert "lacks the loss over its validation samples" in "\n".join(caplog.messages)


def test_epsilon_counts_the_rates_that_a_run_starts_from(sites: dict[str, Path], tmp_path: Path) -> None:
    begin_model(tmp_path / "model.safetensors")
    settings = {**asdict(LEARN), "lr": 0.1, "privacy": "local", "noise": 9.0, "clip": 0.01}
    make = partial(RunSpec, "learn", str(tmp_path / "model.safetensors"), sites=NAMES)

    def learned(name: str, rates: str | None, settings: dict[str, Any] = settings) -> Rates:
        spec = make(out=str(tmp_path / name), settings=settings, rates=rates)
        carry_out(spec, InProcessGrid(sites))  # type: ignore[arg-type]
        return Rates.load(tmp_path / name / "rates.safetensors")

    learned("plain", None, asdict(LEARN))
    learned("first", None)
    second = learned("second", str(tmp_path / "first" / "rates.safetensors"))
    after_plain = learned("after plain", str(tmp_path / "plain" / "rates.safetensors"))
    expected = epsilon_of(9.0, 2 * LEARN.rounds, 1e-5, sensitivity=2.0)
    assert epsilon_of_rates(second) == pytest.approx(expected, rel=1e-9)
    assert second.learned["spent"]["epsilon"] == pytest.approx(expected, rel=1e-9)
    assert epsilon_of_rates(after_plain) == math.inf
    assert after_plain.learned["spent"]["no_bound"] == "learned without privacy"


def test_training_is_that_of_the_local_engine(sites: dict[str, Path], tmp_path: Path) -> None:
    settings = TrainSettings(rounds=2, batch_size=10, workers=0, buffers="local", algorithm="qffl")
    model = begin_model(tmp_path / "model.safetensors")
    spec = RunSpec(
        "train", str(tmp_path / "model.safetensors"), str(tmp_path / "run"), NAMES, asdict(settings)
    )
    carry_out(spec, InProcessGrid(sites))  # type: ignore[arg-type]
    found, card = load_model(tmp_path / "run" / "model.safetensors")
    local = train(model, local_clients(sites), settings).model
    for name, tensor in local.state_dict().items():
        assert largest_difference(tensor, found.state_dict()[name]) < 1e-6, name
    assert weights_hash(found) != weights_hash(model)
    assert card["build"] == BUILD


def test_a_user_network_is_trained_where_sites_allow_it(tmp_path: Path) -> None:
    own = {"name": "tests.helpers.flower.own_network:build", "num_classes": 10}
    allowed = f'[policy]\nmodels = ["{own["name"]}"]\n'
    sites = {name: make_site(tmp_path / name, name, number, allowed) for number, name in enumerate(NAMES)}
    torch.manual_seed(0)
    model = build(**own)
    save_model(tmp_path / "model.safetensors", model, build=own)
    settings = TrainSettings(rounds=2, batch_size=10, workers=0)
    out = str(tmp_path / "run")
    spec = RunSpec("train", str(tmp_path / "model.safetensors"), out, NAMES, asdict(settings))
    with pytest.raises(ModelError, match=f"needs '{own['name']}' to build its network"):
        carry_out(spec, InProcessGrid(sites))  # type: ignore[arg-type]
    carry_out(replace(spec, arch=own["name"]), InProcessGrid(sites))  # type: ignore[arg-type]
    found, _ = load_model(tmp_path / "run" / "model.safetensors", trusted=[own["name"]])
    wanted = train(model, local_clients(sites), settings).model.state_dict()
    for name, tensor in found.state_dict().items():
        assert largest_difference(tensor, wanted[name]) < 1e-6, name


def test_a_resumed_run_ends_with_the_same_rates(sites: dict[str, Path], tmp_path: Path) -> None:
    begin_model(tmp_path / "model.safetensors")
    settings = {**asdict(LEARN), "rounds": 3}
    make = partial(RunSpec, "learn", str(tmp_path / "model.safetensors"), sites=NAMES, settings=settings)
    carry_out(make(out=str(tmp_path / "whole")), InProcessGrid(sites))  # type: ignore[arg-type]

    def die(name: str, reply: Message) -> Message:
        if _round(reply) == 1:
            raise ConnectionError("the server app was killed")
        return reply

    with pytest.raises(ConnectionError):
        carry_out(make(out=str(tmp_path / "run")), InProcessGrid(sites, fault=die))  # type: ignore[arg-type]
    carry_out(make(out=str(tmp_path / "run")), InProcessGrid(sites))  # type: ignore[arg-type]
    whole, resumed = (Rates.load(tmp_path / run / "rates.safetensors") for run in ("whole", "run"))
    assert torch.equal(whole.values, resumed.values)


def test_a_run_that_is_stopped_does_not_count_its_last_round(sites: dict[str, Path], tmp_path: Path) -> None:
    """Flower forgets a stopped run's messages: those that are open look like errors of their sites."""

    class Stopped(InProcessGrid):
        over = False

        def get_nodes(self) -> Iterator[Node]:
            if self.over:
                raise ConnectionError("401: the run was stopped")
            return super().get_nodes()

    def forget(name: str, reply: Message) -> Message:
        if name != "west" or _round(reply) != 1:
            return reply
        grid.over = True
        error = Message(Error(ErrorCode.MESSAGE_UNAVAILABLE, "the message is unavailable"), reply_to=reply)
        error.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
        return error

    begin_model(tmp_path / "model.safetensors")
    out, settings = tmp_path / "run", {**asdict(LEARN), "rounds": 2}
    spec = RunSpec("learn", str(tmp_path / "model.safetensors"), out=str(out), sites=NAMES, settings=settings)
    grid = Stopped(sites, fault=forget)
    with pytest.raises(ConnectionError):
        carry_out(spec, grid)  # type: ignore[arg-type]
    carry_out(spec, InProcessGrid(sites))  # type: ignore[arg-type]
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert [record["failed"] for record in history] == [[], []]
    whole, _, _ = learned(InProcessGrid(sites), tmp_path)
    assert torch.equal(whole.rates.values, Rates.load(out / "rates.safetensors").values)


def _round(reply: Message) -> int:
    """The round of a reply to a task; -1 for other replies, such as a request for the model."""
    if reply.has_error() or "about" not in reply.content.config_records:
        return -1
    return int(reply.content.config_records["about"]["round"])  # type: ignore[arg-type]


def poisoned(change: Any) -> Any:
    """A fault that changes the replies of the site south."""

    def fault(name: str, reply: Message) -> Message:
        if name == "south" and not reply.has_error() and "about" in reply.content:
            change(reply.content)
        return reply

    return fault


def vector(*values: float) -> Any:
    def change(content: Any) -> None:
        content["arrays"] = ArrayRecord({"vector": Array(torch.tensor(values).numpy())})

    return change


def bytes_of(data: bytes) -> Any:
    """An array as it may come from anybody: what it says of itself need not be true."""

    def change(content: Any) -> None:
        content["arrays"] = ArrayRecord({"vector": Array("float32", (23,), "numpy.ndarray", data)})

    return change


def saved(array: np.ndarray) -> bytes:
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


def archive() -> bytes:
    file = BytesIO()
    np.savez(file, vector=np.zeros(23, np.float32))
    return file.getvalue()


def huge() -> bytes:
    """A header that asks for more memory than there is."""
    file = BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (2**60,)})
    return file.getvalue()


def unreadable(content: Any) -> None:
    """A number that no float can hold."""
    content["metrics"] = MetricRecord({"validation.loss": 10**400})


def about(**values: Any) -> Any:
    def change(content: Any) -> None:
        content["about"] = ConfigRecord({**content["about"], **values})

    return change


def metrics(**values: Any) -> Any:
    def change(content: Any) -> None:
        content["metrics"] = MetricRecord(values)

    return change


def changed(**values: Any) -> Any:
    """Some figures, beside those that are right."""

    def change(content: Any) -> None:
        content["metrics"] = MetricRecord({**content["metrics"], **values})

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (vector(*[float("nan")] * 23), "not finite"),
        (vector(*[1e6] * 23), r"the value 1e\+06, which is out of bounds"),
        (vector(1.0, 2.0), r"the shape \(2,\), not \(23,\)"),
        (about(fingerprint="other"), "another fingerprint"),
        (about(round=7), "another round: 7, not 0"),
        (about(model="0" * 64), "another model"),
        (metrics(pixels=3), "'pixels', which was not requested"),
        (metrics(samples=float("inf")), "inf for 'samples'"),
        (metrics(samples=-3), "must not be negative"),
        (metrics(samples=3), "incomplete metrics for 'samples'"),
        (metrics(**{"validation.samples": 3}), "incomplete metrics for 'validation'"),
        (
            changed(**{"validation.samples": 2**60}),
            r"1152921504606846976 .* out of bounds \(100000000 samples\)",
        ),
        (changed(**{"validation.samples": 12.5}), "must be an integer"),
        (changed(**{"validation.right": 13}), "13 correct of 12 samples for 'validation'"),
        (changed(**{"validation.loss": -1.0}), "must not be negative"),
        (
            changed(**{"validation.loss": 1e200}),
            r"a loss of 1e\+200 over 12 samples .* \(1e\+30 per sample\)",
        ),
        (lambda content: content.pop("arrays"), "no record 'arrays'"),
        (bytes_of(b"PK\x03\x04"), "cannot read array 'vector': ValueError"),
        (bytes_of(b""), "cannot read array 'vector': ValueError"),
        (bytes_of(archive()), "cannot read array 'vector': ValueError: the magic string is not correct"),
        (
            bytes_of(saved(np.zeros(10_000, np.float32))),
            "40128 bytes of arrays, above the limit of 184",
        ),
        (about(round="x" * 2**21), "more than 1048576 bytes besides its arrays"),
        (
            bytes_of(huge()),
            "cannot read array 'vector': ValueError: it announces 4611686018427387904 bytes but has 128",
        ),
        (bytes_of(saved(np.zeros(23, np.longdouble))), "type float128|type longdouble"),
        (bytes_of(saved(np.zeros(23, np.uint16))), "the type uint16"),
        (bytes_of(saved(np.zeros(23, ">f4"))), "the type >f4"),
        (unreadable, r"its reply has 1000+ for 'validation\.loss'"),
    ],
)
def test_bad_replies_are_refused_with_a_reason(
    change: Any, words: str, sites: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = LearnSettings(rounds=1, batch_size=6, lr=5.0, workers=0)
    grid = InProcessGrid(sites, fault=poisoned(change))
    result, _, _ = learned(grid, tmp_path, settings)
    assert result.history[0]["failed"] == ["south"]
    assert any("'south' is left out" in text for text in caplog.messages)
    assert re.search(words, "\n".join(caplog.messages))
    others = {name: client for name, client in local_clients(sites).items() if name != "south"}
    model = begin_model(tmp_path / "model.safetensors")
    assert largest_difference(result.rates.values, learn(model, others, settings).rates.values) < 1e-6


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"samples": 2**60}, "1152921504606846976 for 'samples', which is out of bounds"),
        ({"samples": 0}, "lacks the number of training samples, or has none"),
        ({"samples": 48.0}, "must be an integer"),
        ({"tallies.before.loss": 1e200}, "for 'before', which is out of bounds"),
        ({"tallies.before.samples": 0, "tallies.before.right": 0}, "no samples for 'before'"),
    ],
)
def test_impossible_metrics_neither_end_nor_dominate_training(
    figures: dict[str, Any],
    words: str,
    sites: dict[str, Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = begin_model(tmp_path / "model.safetensors")
    settings = TrainSettings(rounds=1, batch_size=24, workers=0, algorithm="qffl", q=2.0)
    out = tmp_path / "run"
    spec = RunSpec("train", str(tmp_path / "model.safetensors"), str(out), NAMES, asdict(settings))
    carry_out(spec, InProcessGrid(sites, fault=poisoned(changed(**figures))))  # type: ignore[arg-type]
    assert json.loads((out / "history.jsonl").read_text())["failed"] == ["south"]
    assert words in "\n".join(caplog.messages)
    found, _ = load_model(out / "model.safetensors")
    without = replace(spec, out=str(tmp_path / "without"), timeouts=asdict(Timeouts(connect=0)))
    carry_out(without, InProcessGrid(sites, absent={"south"}))  # type: ignore[arg-type]
    assert weights_hash(found) == weights_hash(load_model(tmp_path / "without" / "model.safetensors")[0])
    assert weights_hash(found) != weights_hash(model)


def test_a_reply_may_lack_the_number_of_correct_predictions() -> None:
    """Where labels are not classes, there is no accuracy."""
    task = Task("learn", 0, 0, 1, {}, "model", "architecture", {})
    report = {"validation": {"samples": 3, "loss": 1.5, "right": None}}
    _, found = read_reply(reply_records(task, torch.zeros(2), report), task, length=2, largest=1.0)
    tallies = MetricSumsByName()
    tallies.add(found)
    assert tallies.summary() == {"validation_loss": 0.5}


def test_a_search_sees_how_bad_a_step_was() -> None:
    """After a step that goes far too far, the loss is huge: a refused reply would end the run."""
    task = Task("learn", 1, 0, 1, {"optimizer": "trust-region"}, "model", "architecture", {})
    report = {"validation": {"samples": 10, "loss": 2e10, "right": 2}}
    reply = reply_records(task, torch.full((2,), -3e12), report)
    vector, found = read_reply(reply, task, length=2, largest=LARGEST_SLOPE)
    assert vector.tolist() == pytest.approx([-3e12] * 2)
    assert found == report


def test_a_silent_site_costs_the_deadline_and_takes_part_again(
    sites: dict[str, Path], tmp_path: Path
) -> None:
    silent = {"west"}

    def fault(name: str, reply: Message) -> Message | None:
        return None if name in silent and _round(reply) == 0 else reply

    result, engines, clock = learned(InProcessGrid(sites, fault=fault), tmp_path)
    assert [record["failed"] for record in result.history] == [["west"], []]
    assert 60 <= clock.now < 65
    assert engines[0].counts.late == 0


def silent_from_the_start(name: str, reply: Message) -> Message | None:
    """West never replies."""
    return None if name == "west" else reply


def test_a_first_round_is_not_held_up_by_a_silent_site(tmp_path: Path) -> None:
    """No site has the model yet: a request for it counts neither as a result nor as an error."""
    settings = replace(LEARN, rounds=1)
    grid = InProcessGrid(make_sites(tmp_path), fault=silent_from_the_start, seconds={"north": 5, "south": 10})
    result, _, clock = learned(grid, tmp_path, settings)
    assert result.history[0]["failed"] == ["west"]
    # South asks for the model, takes it and does its task: three replies of ten seconds, then the deadline.
    assert 90 <= clock.now < 95


def test_sites_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """North has its model and its task while south has not even said that it lacks the model."""
    grid = InProcessGrid(make_sites(tmp_path), seconds={"south": 50})
    result, _, clock = learned(grid, tmp_path, replace(LEARN, rounds=1))
    assert result.history[0]["failed"] == ["south"]  # the others were ready after two seconds
    assert 60 <= clock.now < 65
    to_south = [message.metadata.message_type for message in grid.sent if message.metadata.dst_node_id == 2]
    assert to_south == ["train.task", "query.nudge", "query.model"]
    again, _, _ = learned(grid, tmp_path, replace(LEARN, rounds=1))
    assert again.history[0]["failed"] == []  # it kept the model


def test_a_site_that_loses_the_model_gets_it_once_a_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def forget(name: str, reply: Message) -> Message:
        if name == "west":
            for file in (sites["west"].parent / "models").glob("*"):
                file.unlink()
        return reply

    sites = make_sites(tmp_path)
    grid = InProcessGrid(sites, fault=forget)
    result, _, clock = learned(grid, tmp_path)
    assert [record["failed"] for record in result.history] == [["west"], ["west"]]
    assert "'west' is left out: lacks the model" in "\n".join(caplog.messages)
    to_west = [message.metadata.message_type for message in grid.sent if message.metadata.dst_node_id == 3]
    assert to_west == ["train.task", "query.model", "train.task"] * 2
    assert clock.now < 5  # nobody waited for it


def test_errors_do_not_cut_off_slow_sites(tmp_path: Path) -> None:
    """Two of three refuse at once; the third may take longer than the deadline."""
    refuse = '[policy]\nkinds = ["train"]\n'
    sites = {
        name: make_site(tmp_path / name, name, number, "" if name == "west" else refuse)
        for number, name in enumerate(NAMES)
    }
    grid = InProcessGrid(sites, seconds={"west": 100})
    settings = replace(LEARN, rounds=1, min_reply_fraction=0.0)
    result, _, clock = learned(grid, tmp_path, settings)
    assert result.history[0]["failed"] == ["north", "south"]
    assert 200 <= clock.now < 310  # it had to ask for the model, too


@pytest.mark.parametrize("deadline", [60.0, 15.0])
@pytest.mark.parametrize("known", [True, False])
def test_a_site_that_is_a_reply_behind_takes_part(known: bool, deadline: float, tmp_path: Path) -> None:
    """Its Flower process holds a reply back until the next message comes, as after some stopped runs."""
    whole, _, _ = learned(InProcessGrid(make_sites(tmp_path / "others")), tmp_path)
    sites = make_sites(tmp_path)
    if known:  # else south has to get the model first, in three replies instead of one
        learned(InProcessGrid(sites), tmp_path)
    kept: list[Message | None] = [None]

    def behind(name: str, reply: Message) -> Message | None:
        if name != "south":
            return reply
        kept.append(reply)
        return kept[-2]

    grid = InProcessGrid(sites, fault=behind)
    result, engines, _ = learned(grid, tmp_path, timeouts=Timeouts(deadline=deadline, longest=600))
    assert [record["failed"] for record in result.history] == [[], []]
    assert torch.equal(result.rates.values, whole.rates.values)
    assert [m.metadata.message_type for m in grid.sent].count("query.nudge") == (2 if known else 4)
    assert engines[0].counts == Counts()


def test_a_slow_site_is_pinged_once(sites: dict[str, Path], tmp_path: Path) -> None:
    """It reads messages only after its work, so a second ping would change nothing."""
    learned(InProcessGrid(sites), tmp_path)
    grid = InProcessGrid(sites, seconds={"south": 55.0})
    result, _, _ = learned(grid, tmp_path, replace(LEARN, rounds=1))
    assert [record["failed"] for record in result.history] == [[]]
    assert [m.metadata.message_type for m in grid.sent].count("query.nudge") == 1


def test_late_and_duplicate_replies_are_counted_and_ignored(sites: dict[str, Path], tmp_path: Path) -> None:
    kept: list[Message] = []

    def fault(name: str, reply: Message) -> Message | None:
        if name == "west" and _round(reply) == 0:
            kept.append(reply)
            return None
        if _round(reply) == 1 and kept:
            grid.delayed += [kept.pop(), reply]  # the late one, and this one a first time
        return reply

    grid = InProcessGrid(sites, fault=fault)
    result, engines, _ = learned(grid, tmp_path)
    assert [record["failed"] for record in result.history] == [["west"], []]
    assert (engines[0].counts.late, engines[0].counts.duplicate) == (1, 1)


def test_too_few_replies_abandon_the_round(sites: dict[str, Path], tmp_path: Path) -> None:
    def fault(name: str, reply: Message) -> Message | None:
        return None if name != "west" and _round(reply) == 1 else reply

    before, _, _ = learned(InProcessGrid(sites), tmp_path, LearnSettings(rounds=1, batch_size=6, workers=0))
    grid = InProcessGrid(sites, fault=fault)
    after, _, _ = learned(grid, tmp_path, LearnSettings(rounds=2, batch_size=6, workers=0))
    assert [record["abandoned"] for record in after.history] == [False, True]
    assert torch.equal(before.rates.values, after.rates.values)


def test_absent_sites(sites: dict[str, Path], tmp_path: Path) -> None:
    result, _, _ = learned(InProcessGrid(sites, absent={"north"}), tmp_path)
    assert [record["failed"] for record in result.history] == [["north"], ["north"]]
    with pytest.raises(FederationError, match="'north': is not connected"):
        learned(InProcessGrid(sites, absent=set(NAMES)), tmp_path)


@pytest.mark.parametrize("said", [[""], []])
def test_a_message_that_flower_does_not_accept(
    said: list[str], sites: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    result, _, clock = learned(InProcessGrid(sites, untaken={"south": said}), tmp_path)
    assert [record["failed"] for record in result.history] == [["south"], ["south"]]
    assert "Flower did not accept the message train.task" in "\n".join(caplog.messages)
    assert clock.now < 5  # nothing waited for a reply to it


def test_a_round_without_replies_ends(sites: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(FederationError, match="did not reply in time"):
        learned(InProcessGrid(sites, fault=lambda name, reply: None), tmp_path)


def test_the_data_of_a_remote_site_cannot_be_read() -> None:
    with pytest.raises(FederationError, match="does not leave its site"):
        RemoteSite("north").validation()
