"""A site: what leaves it, what it refuses, and what it logs."""

import json
import os
import resource
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Error, Message, RecordDict

import ttpfl
from tests.helpers.flower.in_process import BUILD, arrays_of, begin_model, call, make_site
from tests.helpers.persons import signals
from ttpfl.core.network import weights_hash
from ttpfl.errors import DataError, FederationError, RefusedError
from ttpfl.federation import LearnSettings, TrainSettings
from ttpfl.federation.common.state_vector import layout_of, pack
from ttpfl.federation.privacy.accountant import epsilon_of
from ttpfl.flower.audit import Audit
from ttpfl.flower.messages import FAILED, LACKING, REFUSED, Task, model_records, task_records
from ttpfl.flower.model_store import card_of
from ttpfl.flower.policy import Budget, Policy
from ttpfl.flower.replies import failure_of
from ttpfl.flower.site import Site
from ttpfl.flower.site_work import client_of
from ttpfl.models import build
from ttpfl.util.checksum import sealed

SETTINGS = asdict(LearnSettings(optimizer="sgd", batch_size=6))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> torch.nn.Module:
    return begin_model(tmp_path_factory.mktemp("model") / "model.safetensors")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return make_site(tmp_path / "north", "north", 0)


def task_for(network: torch.nn.Module, **changes: Any) -> Task:
    card = card_of(network, BUILD)
    rates = {"granularity": "tensor", "only": None}
    return replace(Task("learn", 0, 0, 3, SETTINGS, card.hash, card.fingerprint, rates), **changes)


def ask(site: Path, records: RecordDict, kind: str = "train.task") -> Message:
    return call(site, Message(records, 1, kind))


def give_model(site: Path, model: torch.nn.Module, **changes: Any) -> Message:
    card = replace(card_of(model, BUILD), **changes)
    return ask(site, model_records(card, model.state_dict()), "query.model")


def test_nothing_but_rates_counts_and_metrics_leaves(site: Path, model: torch.nn.Module) -> None:
    """Every field of every reply is known, and none has room for data."""
    replies = [ask(site, task_records(task_for(model), torch.zeros(23))), give_model(site, model)]
    replies.append(ask(site, task_records(task_for(model), torch.zeros(23))))
    lacking, kept, reply = replies
    assert lacking.error.code == LACKING
    assert dict(kept.content) == {}
    assert {name: (a.shape, str(a.dtype)) for name, a in arrays_of(reply).items()} == {
        "arrays/vector": ((23,), "float32")
    }
    assert dict(reply.content.metric_records["metrics"]).keys() == {
        "validation.samples",
        "validation.loss",
        "validation.right",
    }
    assert dict(reply.content.config_records["about"]) == {
        "round": 0,
        "model": task_for(model).model,
        "fingerprint": task_for(model).fingerprint,
    }  # what the server said itself
    assert set(reply.content) == {"arrays", "metrics", "about"}
    assert reply.content.metric_records["metrics"]["validation.samples"] == 12


def test_with_local_privacy_only_noisy_rates_leave(site: Path, model: torch.nn.Module) -> None:
    give_model(site, model)
    settings = asdict(LearnSettings(batch_size=6, privacy="local", clip=0.1, noise=2.0))
    task = task_for(model, settings=settings)
    first, second = (ask(site, task_records(task, torch.zeros(23))) for _ in range(2))
    assert dict(first.content.metric_records["metrics"]) == {}
    assert (arrays_of(first)["arrays/vector"] != arrays_of(second)["arrays/vector"]).all()


def test_the_text_of_an_error_stays_at_the_site(site: Path, model: torch.nn.Module) -> None:
    give_model(site, model)
    folder = site.parent / "data" / "source"
    (folder / "own.npz").unlink()
    (folder / "patient-jones.npz").write_bytes(b"junk")
    reply = ask(site, task_records(task_for(model), torch.zeros(23)))
    assert reply.error.code == FAILED
    assert "jones" not in str(reply.error.reason)
    last = json.loads((site.parent / "audit.jsonl").read_text().splitlines()[-1])
    assert "patient-jones" in last["failed"]


def break_site_file(site: Path) -> None:
    site.write_text("name = ")


def remove_site_file(site: Path) -> None:
    site.unlink()


def break_audit_log(site: Path) -> None:
    (site.parent / "audit.jsonl").unlink(missing_ok=True)
    (site.parent / "audit.jsonl").mkdir()


@pytest.mark.parametrize("kind", ["train.task", "query.model", "evaluate"])
@pytest.mark.parametrize(
    ("breakage", "error"),
    [
        (break_site_file, "FederationError"),
        (remove_site_file, "FileNotFoundError"),
        (break_audit_log, "IsADirectoryError"),
    ],
)
def test_a_broken_site_tells_only_the_kind_of_its_error(
    site: Path, breakage: Callable[[Path], None], error: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    breakage(site)
    reply = ask(site, RecordDict(), kind)
    assert reply.error.code == FAILED
    assert reply.error.reason == f"failed ({error}): see the log of its Flower process"
    assert str(site.parent) in caplog.text  # which stays at the site


def test_nothing_leaves_that_cannot_be_noted(
    site: Path, model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when the reply is ready."""
    give_model(site, model)
    write = Audit.write

    def full(audit: Audit, entry: Mapping[str, Any]) -> None:
        if entry["direction"] == "out":
            raise OSError(28, "No space left on device", str(site))
        write(audit, entry)

    monkeypatch.setattr(Audit, "write", full)
    reply = ask(site, task_records(task_for(model), torch.zeros(23)))
    assert reply.error.code == FAILED
    assert str(site) not in str(reply.error.reason)


def test_half_a_line_in_the_audit_log_is_none(site: Path) -> None:
    """The system may write as much as there is room for, and not call it an error."""
    ask(site, RecordDict())
    room = (site.parent / "audit.jsonl").stat().st_size + 20
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        reply = ask(site, RecordDict())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(reply.error.reason).startswith("failed (OSError)")


@pytest.mark.parametrize("kind", ["train", "evaluate", "query", "query.other", "evaluate.task"])
def test_messages_of_other_types_are_noted_and_refused(site: Path, kind: str) -> None:
    reply = ask(site, RecordDict({"task": ConfigRecord({"give": "all"})}), kind)
    assert reply.error.code == REFUSED
    assert f"the type {kind!r}, not one of train.task, query.model" in str(reply.error.reason)
    lines = [json.loads(line) for line in (site.parent / "audit.jsonl").read_text().splitlines()]
    assert [(line["direction"], line["type"]) for line in lines] == [("in", kind), ("out", kind)]
    assert lines[0]["records"]["task"] == {"give": "all"}
    assert lines[1]["error"] == reply.error.reason


def test_every_message_is_noted(site: Path, model: torch.nn.Module) -> None:
    give_model(site, model)
    reply = ask(site, task_records(task_for(model), torch.zeros(23)))
    ask(site, task_records(task_for(model, kind="steal"), torch.zeros(23)))
    lines = [json.loads(line) for line in (site.parent / "audit.jsonl").read_text().splitlines()]
    assert [line["direction"] for line in lines] == ["in", "out"] * 3
    assert lines[2]["records"]["task"]["kind"] == "learn"
    assert lines[3]["records"]["metrics"] == dict(reply.content.metric_records["metrics"])
    assert lines[3]["records"]["arrays"]["vector"]["shape"] == [23]
    assert "'steal' are not allowed" in lines[5]["error"]
    assert (site.parent / "audit.jsonl").stat().st_mode & 0o077 == 0


def test_the_old_name_of_a_bound() -> None:
    """In `site.toml`, and in the settings of a run spec of an earlier version."""
    policy = Policy.read({"epochs": 3})
    settings = {"rounds": 2, "epochs": 3}
    assert policy.local_epochs == policy.check(Task("learn", 0, 0, 3, settings, "", "", {})).local_epochs == 3


def test_the_limit_of_rates_does_not_concern_the_counts_of_a_label_prior() -> None:
    policy, vector = Policy(largest_rate=5.0), torch.tensor([1.0, 4.0, 60.0, 40.0])
    policy.check_vector("learn", vector, classes=2)
    for refused, classes in ((vector, 0), (torch.tensor([6.0, 60.0, 40.0]), 2)):
        with pytest.raises(RefusedError, match="above this site's limit of 5"):
            policy.check_vector("learn", refused, classes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "steal"}, "'steal' are not allowed here"),
        ({"settings": {**SETTINGS, "local_epochs": 99}}, "local_epochs is 99, above this site's limit of 10"),
        ({"settings": {**SETTINGS, "batch_size": 1}}, "batch_size is 1, below this site's minimum of 2"),
        ({"settings": {**SETTINGS, "colour": 1}}, "invalid settings"),
        ({"settings": {**SETTINGS, "lr": -1}}, "lr must be a positive number, got -1"),
        ({"settings": {**SETTINGS, "local_epochs": "many"}}, "invalid settings"),
        ({"round": -1}, "round is -1, but this site allows 0 to 99999"),
        ({"client": 3}, "no client 3 of 3"),
        ({"model": "../../etc/passwd"}, "not the hash of a model"),
        ({"fingerprint": "0" * 64}, "not 0000"),
    ],
)
def test_what_is_out_of_bounds_is_refused(
    site: Path, model: torch.nn.Module, changes: dict[str, Any], words: str
) -> None:
    give_model(site, model)
    reply = ask(site, task_records(task_for(model, **changes), torch.zeros(23)))
    assert reply.error.code == REFUSED
    assert words in str(reply.error.reason)


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        (torch.zeros(22), r"(22,), not (23,)"),
        (torch.full((23,), float("nan")), "not finite"),
        (torch.full((23,), 1e9), "above this site's limit of 1000"),
        (torch.zeros(23, dtype=torch.float64), "torch.float64"),
    ],
)
def test_invalid_vectors_are_refused(
    site: Path, model: torch.nn.Module, vector: torch.Tensor, words: str
) -> None:
    give_model(site, model)
    reply = ask(site, task_records(task_for(model), vector))
    assert words in str(reply.error.reason)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hash": "0" * 64}, "not 0000"),
        ({"fingerprint": "f" * 64}, "not ffff"),
        ({"build": {**BUILD, "num_classes": 11}}, "names or shapes differ"),
        ({"build": {**BUILD, "num_classes": 10**12}}, "names or shapes differ"),  # and no memory is taken
        ({"build": {"name": "os:system"}}, "not on this site's list"),
    ],
)
def test_models_that_do_not_match_their_card_are_refused(
    site: Path, model: torch.nn.Module, changes: dict[str, Any], words: str
) -> None:
    reply = give_model(site, model, **changes)
    assert reply.error.code == REFUSED
    assert words in str(reply.error.reason)
    assert not list((site.parent / "models").glob("*"))


def test_a_damaged_model_is_asked_for_again(site: Path, model: torch.nn.Module) -> None:
    give_model(site, model)
    (file,) = (site.parent / "models").glob("*")
    file.write_bytes(file.read_bytes()[:-4] + b"\x00\x00\x00\x40")
    reply = ask(site, task_records(task_for(model), torch.zeros(23)))
    assert reply.error.reason == "refused: this site's copy of the model was damaged, and is removed"
    last = json.loads((site.parent / "audit.jsonl").read_text().splitlines()[-1])
    assert "is damaged (its checksum does not match)" in last["because"]
    assert ask(site, task_records(task_for(model), torch.zeros(23))).error.code == LACKING


def test_a_model_file_that_is_no_model_is_not_named_to_the_server(site: Path, model: torch.nn.Module) -> None:
    give_model(site, model)
    (file,) = (site.parent / "models").glob("*")
    file.write_bytes(b"junk")
    reply = ask(site, task_records(task_for(model), torch.zeros(23)))
    assert reply.error.reason == "refused: this site's copy of the model was damaged, and is removed"
    last = json.loads((site.parent / "audit.jsonl").read_text().splitlines()[-1])
    assert str(file) in last["because"]


def test_a_wrong_limit_does_not_cost_the_model(
    site: Path, model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_model(site, model)
    monkeypatch.setenv("TTPFL_MAX_MODEL_BYTES", "4GB")
    assert ask(site, task_records(task_for(model), torch.zeros(23))).error.code == FAILED
    monkeypatch.undo()
    assert not ask(site, task_records(task_for(model), torch.zeros(23))).has_error()


def test_a_site_keeps_a_limited_number_of_models(tmp_path: Path) -> None:
    site = make_site(tmp_path / "n", "n", 0, "[policy]\nmost_models = 2")
    folder, kept = tmp_path / "n" / "models", list[set[str]]()
    for number in range(4):
        torch.manual_seed(number)
        other = build(**BUILD).eval()
        assert not give_model(site, other).has_error()
        os.utime(folder / f"{weights_hash(other)}.safetensors", (number, number))
        kept.append({path.stem for path in folder.glob("*.safetensors")})
    assert [len(names) for names in kept] == [1, 2, 2, 2]
    assert kept[1] & kept[2] & kept[3] == set()  # the oldest goes first
    assert len(kept[2] & kept[3]) == 1


def test_weights_that_are_not_finite_are_refused(site: Path) -> None:
    broken = build(**BUILD).eval()
    with torch.no_grad():
        broken.conv1.weight[0] = float("nan")
    reply = give_model(site, broken)
    assert reply.error.reason == "refused: the weights of 'conv1.weight' are not finite"


def test_a_model_is_refused_by_its_size_before_it_is_decoded(tmp_path: Path, model: torch.nn.Module) -> None:
    site = make_site(tmp_path / "n", "n", 0, "[policy]\nlargest_model = 1000")
    assert "bytes of arrays, above the limit of 1000" in str(give_model(site, model).error.reason)


def test_a_site_may_lack_classes_that_the_model_knows(site: Path, model: torch.nn.Module) -> None:
    file = site.parent / "data" / "source" / "own.npz"
    with np.load(file) as arrays:
        x, y = arrays["x"], arrays["y"]
    give_model(site, model)
    np.savez(file, x=x[y < 9], y=np.where(y[y < 9] == 3, 4, y[y < 9]))
    assert not ask(site, task_records(task_for(model), torch.zeros(23))).has_error()
    np.savez(file, x=x, y=np.where(y == 3, 255, y))
    assert ask(site, task_records(task_for(model), torch.zeros(23))).error.code == FAILED
    last = json.loads((site.parent / "audit.jsonl").read_text().splitlines()[-1])
    assert "is 255, but there are 10 classes (0 to 9)" in last["failed"]


def test_a_network_that_cannot_be_built(site: Path, model: torch.nn.Module) -> None:
    built = {**BUILD, "image_size": 5}
    reply = give_model(site, model, build=built)
    assert reply.error.reason == f"refused: {built} cannot be built here (ModelError)"
    last = json.loads((site.parent / "audit.jsonl").read_text().splitlines()[-1])
    assert "needs 18 or more" in last["because"]


def test_incomplete_messages_are_refused(site: Path) -> None:
    for records in (RecordDict(), RecordDict({"task": ConfigRecord({"kind": "learn"})})):
        assert ask(site, records).error.code == REFUSED


def test_a_site_can_keep_to_rates(tmp_path: Path, model: torch.nn.Module) -> None:
    site = make_site(tmp_path / "n", "n", 0, '[policy]\nkinds = ["learn"]\nfewest_samples = 13')
    give_model(site, model)
    task = task_for(model, kind="train", settings=asdict(TrainSettings()))
    assert "'train' are not allowed" in str(ask(site, task_records(task, torch.zeros(9))).error.reason)
    few = ask(site, task_records(task_for(model), torch.zeros(23)))
    assert "fewer samples than its minimum of 13" in str(few.error.reason)


def test_few_validation_samples_are_kept_from_training_too(tmp_path: Path, model: torch.nn.Module) -> None:
    """60 images: 48 to train with, 12 for validation."""

    def trained(validate_every: int, more: str = "") -> Message:
        site = make_site(tmp_path / "n", "n", 0, f"{more}[policy]\nfewest_samples = 13")
        give_model(site, model)
        settings = asdict(TrainSettings(batch_size=10, validate_every=validate_every))
        vector = pack(model, torch.empty(layout_of(model).length))
        return ask(site, task_records(task_for(model, kind="train", settings=settings), vector))

    assert "fewer validation samples than its minimum of 13" in str(trained(validate_every=1).error.reason)
    assert not trained(validate_every=0).has_error()
    assert not trained(validate_every=1, more="validation = 0.25\n").has_error()


def test_a_network_that_was_taken_off_the_list(tmp_path: Path, model: torch.nn.Module) -> None:
    site = make_site(tmp_path / "n", "n", 0)
    give_model(site, model)
    make_site(tmp_path / "n", "n", 0, '[policy]\nmodels = ["resnet18"]')
    reply = ask(site, task_records(task_for(model), torch.zeros(23)))
    assert reply.error.code == REFUSED
    assert "'shallow_cnn' is not on this site's list: resnet18" in str(reply.error.reason)
    assert list((tmp_path / "n" / "models").glob("*"))  # it is not damaged, so it stays


def test_a_message_with_bytes_is_noted(site: Path) -> None:
    assert ask(site, RecordDict({"task": ConfigRecord({"kind": b"\x00\xff"})})).error.code == REFUSED
    first = json.loads((site.parent / "audit.jsonl").read_text().splitlines()[0])
    assert first["records"]["task"] == {"kind": "b'\\x00\\xff'"}


def test_a_site_can_demand_noise_and_stops_when_its_budget_is_spent(
    tmp_path: Path, model: torch.nn.Module
) -> None:
    budget = epsilon_of(2.0, 2, 1e-5, sensitivity=2.0) + 1e-6  # enough for two replies
    policy = f'[policy]\nkinds = ["learn"]\nlocal_noise = 2.0\nepsilon = {budget}'
    site = make_site(tmp_path / "n", "n", 0, policy)
    give_model(site, model)
    plain = ask(site, task_records(task_for(model), torch.zeros(23)))
    assert "local noise is 0, below this site's minimum of 2.0" in str(plain.error.reason)
    noisy = asdict(LearnSettings(batch_size=6, privacy="local", noise=2.0))
    replies = [ask(site, task_records(task_for(model, settings=noisy), torch.zeros(23))) for _ in range(3)]
    assert [reply.has_error() for reply in replies] == [False, False, True]
    assert "budget" in str(replies[2].error.reason)
    settings = Site.read(site)
    assert settings.budget.spent == pytest.approx(epsilon_of(2.0, 2, 1e-5, sensitivity=2.0))


def test_budget_of_different_noises_adds_up(tmp_path: Path) -> None:
    policy = Policy(kinds=["learn"], local_noise=1.0, epsilon=100.0)
    budget = Budget(tmp_path / "spent.json", policy)
    for noise in (2.0, 2.0, 2.0, 2.0):
        budget.spend(LearnSettings(privacy="local", noise=noise))
    one = Budget(tmp_path / "other.json", policy)
    one.spend(LearnSettings(privacy="local", noise=1.0))
    assert budget.spent == pytest.approx(one.spent)  # four times half the signal is once the whole


def test_a_damaged_record_of_the_budget_gives_nothing_away(tmp_path: Path) -> None:
    policy = Policy(kinds=["learn"], local_noise=1.0, epsilon=100.0)
    settings, record = LearnSettings(privacy="local", noise=2.0), tmp_path / "spent.json"
    Budget(record, policy).spend(settings)
    whole = record.read_text()
    squares = json.loads(whole)["mu_squared"]
    unsealed = {key: value for key, value in json.loads(whole).items() if key != "checksum"}
    sums: list[Any] = [float("nan"), float("inf"), -5, "nan", True, None, 10**400]
    impossible = [json.dumps({"mu_squared": said}) for said in sums]
    impossible += [json.dumps(sealed({**unsealed, "mu_squared": said})) for said in sums]
    impossible += ['{"mu_squared": 1e999}']
    other = json.dumps(sealed({**unsealed, "version": 3}))
    for damaged in (
        whole.replace(str(squares), "0.001"), whole[:-9], "", "[]", "{}", json.dumps(unsealed), other,
        *impossible,
    ):  # fmt: skip
        record.write_text(damaged)
        with pytest.raises(RefusedError, match="record of its privacy budget is damaged"):
            Budget(record, policy).spend(settings)
        assert record.read_text() == damaged
    record.write_text(json.dumps({"mu_squared": squares}))  # as earlier versions wrote it
    old = Budget(record, policy)
    assert old.spent == pytest.approx(epsilon_of(2.0, 1, policy.delta, sensitivity=2.0))
    old.spend(settings)
    assert json.loads(record.read_text()).keys() == {"format", "version", "mu_squared", "checksum"}
    assert old.spent == pytest.approx(epsilon_of(2.0, 2, policy.delta, sensitivity=2.0))
    record.write_text(json.dumps(sealed({"mu_squared": squares})))  # with a checksum, but no version yet
    assert old.spent == pytest.approx(epsilon_of(2.0, 1, policy.delta, sensitivity=2.0))


def test_a_reply_of_infinite_cost_is_refused(tmp_path: Path) -> None:
    budget = Budget(tmp_path / "spent.json", Policy(kinds=["learn"], local_noise=1e-300, epsilon=100.0))
    for noise in (1e-300, 1e-150):
        with pytest.raises(RefusedError, match="privacy budget of 100 is exhausted"):
            budget.spend(LearnSettings(privacy="local", noise=noise))
    assert budget.spent == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, "5", True, None])
@pytest.mark.parametrize("name", ["noise", "clip"])
def test_noise_and_clip_are_finite_numbers(name: str, value: Any) -> None:
    policy = Policy(kinds=["learn"], local_noise=5.0, epsilon=1.0)
    settings = {"privacy": "local", "noise": 5.0, "clip": 0.1, name: value}
    with pytest.raises(RefusedError, match=f"{name} must be a .* number, got "):
        policy.check(Task("learn", 0, 0, 3, settings, "a" * 64, "f", {}))


def test_every_concurrent_reply_counts(tmp_path: Path) -> None:
    """Flower may deliver a task twice, and each copy has a process of its own."""
    policy = Policy(kinds=["learn"], local_noise=1.0, epsilon=1000.0)
    settings = LearnSettings(privacy="local", noise=2.0)

    def spend(_: int) -> None:
        Budget(tmp_path / "spent.json", policy).spend(settings)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(spend, range(100)))
    alone = epsilon_of(2.0, 100, policy.delta, sensitivity=2.0)
    assert Budget(tmp_path / "spent.json", policy).spent == pytest.approx(alone)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('name = "n"\ncolour = 1', "unknown key 'colour'\\. Available: name"),
        ('name = "n"\nlayout = "folder"', "list all classes"),
        ('name = "n"\nlayout = "tape"', "'tape'"),
        ('name = "n"\n[policy]\nkind = []', "unknown key 'kind' in policy; did you mean 'kinds'"),
        ('name = "n"\n[policy]\nkinds = ["x"]', "unknown task 'x' in policy.kinds"),
        ('name = "n"\n[policy]\nepsilon = 1.0', "set local_noise"),
        (
            'name = "n"\n[policy]\nkinds = ["learn"]\nlocal_noise = 0',
            "local_noise must be a positive number, got 0",
        ),
        (
            'name = "n"\n[policy]\nkinds = ["learn"]\nlocal_noise = nan',
            "local_noise must be a finite number, got nan",
        ),
        ('name = "n"\n[policy]\nlocal_noise = 1.0', "local_noise protects rates only"),
        (
            'name = "n"\n[policy]\nkinds = ["learn"]\nlocal_noise = 1\nepsilon = nan',
            "epsilon must be a finite number, got nan",
        ),
        (
            'name = "n"\n[policy]\nkinds = ["learn"]\nlocal_noise = 1\nepsilon = 0',
            "policy.epsilon must be a positive number, got 0",
        ),
        (
            'name = "n"\n[policy]\ndelta = 1e5',
            r"policy.delta must be a number above 0 and below 1, got 100000.0",
        ),
        ("name = ", "site.toml"),
    ],
)
def test_mistakes_in_the_sites_file(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(FederationError, match=words):
        Site.read(tmp_path / "site.toml")


def test_pictures_in_folders_keep_the_federations_classes(tmp_path: Path, model: torch.nn.Module) -> None:
    from PIL import Image

    from ttpfl.flower.site_work import client_of

    for label in ("3", "7"):  # this site has no other class
        folder = tmp_path / "data" / "source" / "own" / label
        folder.mkdir(parents=True)
        for number in range(5):
            Image.new("RGB", (28, 28), (20 * number, 0, 0)).save(folder / f"{number}.png")
    names = json.dumps([str(digit) for digit in range(10)])
    (tmp_path / "site.toml").write_text(f'name = "n"\nlayout = "folder"\nclasses = {names}')
    client = client_of(Site.read(tmp_path / "site.toml"))
    assert set(client.train_labels.tolist()) | set(client.validation_labels.tolist()) == {3, 7}


def test_a_reason_of_a_site_is_one_line() -> None:
    message = Message(RecordDict(), 7, "train")
    reply = Message(Error(FAILED, "the disk is full\nround 3: all is well\u200b"), reply_to=message)
    assert failure_of(reply) == "the disk is full\\u000around 3: all is well\\u200b"


def test_a_site_with_signals(tmp_path: Path) -> None:
    """Normalised by the numbers in site.toml, never by the site's own."""
    arrays = signals(persons=1, samples=60)
    path = make_site(tmp_path / "north", "north", 0, "mean = [0.5, 0.0]\nstd = [2.0, 1.0]\nscale = 0.001\n")
    x = np.array(arrays["x"])
    np.savez(path.parent / "data/source/own.npz", x=x, y=arrays["y"])
    client = client_of(Site.read(path), outputs=3)
    expected = (x[client.train_ids] * 0.001 - [[0.5], [0.0]]) / [[2.0], [1.0]]
    assert np.allclose(client.train().x, expected, atol=1e-6)
    arguments = {"name": "signal_cnn", "num_classes": 3, "input_shape": [2, 16]}
    network = build(**arguments).eval()
    card = card_of(network, arguments)
    assert not ask(path, model_records(card, network.state_dict()), "query.model").has_error()
    length = len(ttpfl.Rates.zeros(network).values)
    task = replace(task_for(network), model=card.hash, fingerprint=card.fingerprint)
    reply = ask(path, task_records(task, torch.zeros(length)))
    assert arrays_of(reply)["arrays/vector"].shape == (length,)
    path.write_text('name = "north"\n')
    with pytest.raises(DataError, match=r"give mean and std in site\.toml, the same at every site"):
        client_of(Site.read(path), outputs=3)
