"""`ttpfl personalize` on signals and tables, compared with the same arithmetic by hand."""

import csv
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

import ttpfl
from ttpfl.cli import app
from ttpfl.models import Signature, save_model
from ttpfl.models.build import arguments_for

CLASSES = ("rest", "walk")
X = np.random.default_rng(0).integers(-3000, 3000, (11, 2, 16)).astype(np.int16)
SIGNALS = Signature(CLASSES, (0, 0), (0.5, -0.5), (2.0, 1.5), (2, 16), scale=0.001)
ROWS = Signature(CLASSES, (0, 0), (50.0, 120.0), (9.0, 15.0), (2,), missing="mean", features=("age", "bp"))


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["personalize", *arguments, "--batch-size", "4"])


def written(folder: Path, name: str, signature: Signature) -> tuple[torch.nn.Module, ttpfl.Rates]:
    """A model with random weights and rates, in files."""
    torch.manual_seed(0)
    how = arguments_for(name, 2, (0, 0), signature.shape)
    model = ttpfl.models.build(**how).eval()
    save_model(folder / "m.safetensors", model, build=how, signature=asdict(signature))
    zeros = ttpfl.Rates.zeros(model)
    rates = zeros.with_values(torch.linspace(-0.3, 0.3, len(zeros.names)))
    rates.save(folder / "r.safetensors")
    return model, rates


def by_hand(model: torch.nn.Module, rates: ttpfl.Rates, x: torch.Tensor) -> list[tuple[str, float]]:
    personal = ttpfl.Personalizer(model, rates, mode="online")
    probabilities = torch.cat([personal(batch) for batch in x.split(4)]).double().softmax(1)
    return [(CLASSES[int(row.argmax())], float(row.max())) for row in probabilities]


def lines(result: Result) -> list[tuple[str, str, float]]:
    assert result.exit_code == 0, result.output
    _, *rows = csv.reader(result.stdout.splitlines())
    return [(path, label, float(confidence)) for path, label, confidence in rows]


@pytest.mark.parametrize("file", ["new.npz", "new.npy"])
def test_signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    monkeypatch.chdir(tmp_path)
    model, rates = written(tmp_path, "signal_cnn", SIGNALS)
    np.savez(file, x=X) if file.endswith("z") else np.save(file, X)
    found = lines(invoke(file, "--model", "m.safetensors", "--rates", "r.safetensors"))
    x = torch.from_numpy((X * 0.001 - [[0.5], [-0.5]]) / [[2.0], [1.5]]).float()
    for number, (row, (label, confidence)) in enumerate(zip(found, by_hand(model, rates, x), strict=True)):
        assert row[:2] == (f"{file}#{number}", label)
        assert row[2] == pytest.approx(confidence, abs=1e-4)


def test_a_table_may_have_other_columns_and_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, rates = written(tmp_path, "mlp", ROWS)
    Path("new.csv").write_text("bp,site,age\n120,x,59\n,x,41\n150,y,50\n")
    found = lines(invoke("new.csv", "--model", "m.safetensors", "--rates", "r.safetensors"))
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0]])
    assert [row[1] for row in found] == [label for label, _ in by_hand(model, rates, x)]
    assert [row[2] for row in found] == pytest.approx(
        [value for _, value in by_hand(model, rates, x)], abs=1e-4
    )


def test_files_that_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "signal_cnn", SIGNALS)
    Path("new.csv").write_text("a\n1\n")
    np.save("short.npy", X[:, :, :9])
    np.save("nan.npy", np.full((5, 2, 16), np.nan))
    Path("text.npz").write_text("not an archive")
    for file, message in {
        "new.csv": "is a table, but the model names no features",
        "short.npy": "but the model needs numbers of shape (2, 16)",
        "nan.npy": "sample 0 has NaN or Inf",
        "text.npz": "is not a valid npz file",
        "lost.npy": "No such file",
    }.items():
        result = invoke(file, "--model", "m.safetensors")
        assert result.exit_code == 1
        assert message in " ".join(result.stderr.split())
    written(tmp_path, "mlp", ROWS)
    result = invoke("new.csv", "--model", "m.safetensors")
    assert "unknown feature column 'age' of new.csv" in " ".join(result.stderr.split())
    Path("new.parquet").write_bytes(b"PAR1 and so on PAR1")
    result = invoke("new.parquet", "--model", "m.safetensors")
    assert "new.parquet is a Parquet file: save it as CSV" in " ".join(result.stderr.split())


def test_a_model_of_sites_that_alone_know_their_normalisation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file has the shape and the number of classes; the same numbers as in site.toml are options."""
    monkeypatch.chdir(tmp_path)
    model, rates = written(tmp_path, "signal_cnn", SIGNALS)
    save_model(Path("m.safetensors"), model, build=arguments_for("signal_cnn", 2, (0, 0), (2, 16)))
    np.save("new.npy", X)
    command = ("new.npy", "--model", "m.safetensors", "--rates", "r.safetensors")
    told = ("--mean", "0.5,-0.5", "--std", "2,1.5", "--scale", "0.001", "--classes", ",".join(CLASSES))
    x = torch.from_numpy((X * 0.001 - [[0.5], [-0.5]]) / [[2.0], [1.5]]).float()
    assert [row[1] for row in lines(invoke(*command, *told))] == [one for one, _ in by_hand(model, rates, x)]
    assert {row[1] for row in lines(invoke(*command, *told[:6]))} <= {"0", "1"}
    for more, message in {
        (): "does not describe its model: add --mean --std",
        ("--mean", "1", "--std", "1,1"): "mean must be 2 numbers",
        (*told[:4], "--scale", "much"): "--scale much: expected a number",
    }.items():
        result = invoke(*command, *more)
        assert result.exit_code == 1
        assert message in " ".join(result.stderr.split())
