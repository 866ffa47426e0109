"""Batches and clients of every shape, and clear words for those that are none."""

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from ttpfl import BatchError
from ttpfl.core.inputs import Inputs, checked, client_batches, split_batch

X, Y = torch.arange(14.0).view(7, 2), torch.arange(7)


class Mapped(Dataset):
    def __len__(self) -> int:
        return len(Y)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return X[index], int(Y[index])


@pytest.mark.parametrize(
    "client",
    [
        (X, Y),
        TensorDataset(X, Y),
        Mapped(),
        [(x, y) for x, y in zip(X, Y, strict=True)],
        DataLoader(TensorDataset(X, Y), batch_size=3),
    ],
    ids=["pair", "TensorDataset", "map-style", "list", "DataLoader"],
)
def test_clients(client: object) -> None:
    for _ in range(2):  # always the same
        batches = [split_batch(batch) for batch in client_batches(client, 3)]
        assert [len(y) for _, y in batches] == [3, 3, 1]
        assert torch.equal(torch.cat([y for _, y in batches]), Y)
        assert torch.equal(torch.cat([inputs.args[0] for inputs, _ in batches]), X)


def test_clients_with_several_inputs() -> None:
    batches = list(client_batches(((X, {"a": X}), Y), 4))
    assert torch.equal(batches[1][0][1]["a"], X[4:])
    inputs, labels = split_batch(next(iter(client_batches(TensorDataset(X, X + 1, Y), 4))))
    assert len(inputs.args) == 2
    assert torch.equal(labels, Y[:4])


@pytest.mark.parametrize(
    ("client", "message"),
    [
        (iter([1]), "a client is a map-style dataset"),
        ((X[:3], Y), "must have the same length"),
    ],
)
def test_clients_that_are_none(client: object, message: str) -> None:
    with pytest.raises(BatchError, match=message):
        list(client_batches(client, 2))


def test_batch_size_must_be_positive() -> None:
    with pytest.raises(BatchError, match="batch_size must be a positive integer, got 0"):
        client_batches((X, Y), 0)


def test_labelled_batches() -> None:
    assert split_batch((X, Y))[0] == Inputs((X,), {})
    assert split_batch([(X, X), Y])[0].args == (X, X)
    inputs, labels = split_batch({"input_ids": X, "mask": Y, "labels": Y})
    assert inputs == Inputs((), {"input_ids": X, "mask": Y})
    assert labels is Y
    assert split_batch(({"pixels": X}, Y))[0].kwargs == {"pixels": X}


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"x": X}, r"no labels among the keys \['x'\]"),
        (X, "not Tensor"),
        ((X, Y, Y), "a labelled batch is"),
        ((X, [0, 1]), "labels must be a torch tensor, not list"),
    ],
)
def test_labelled_batches_that_are_none(batch: object, message: str) -> None:
    with pytest.raises(BatchError, match=message):
        split_batch(batch)


def test_bad_numbers_are_named() -> None:
    bad = X.clone()
    bad[4, 1] = float("nan")
    with pytest.raises(BatchError, match="input has NaN or Inf in sample 4"):
        checked(Inputs((bad,), {}))
    bad[4, 1] = -float("inf")
    with pytest.raises(BatchError, match=r"input 1\['a'\] has NaN or Inf in sample 4"):
        checked(Inputs((X, {"a": bad}), {}))
    with pytest.raises(BatchError, match="input 'scale' is nan"):
        checked(Inputs((X,), {"scale": torch.tensor(float("nan"))}))
    huge = torch.full((4, 2), 3e38)  # the sum overflows, the numbers do not
    assert checked(Inputs((huge,), {})).args[0].shape == (4, 2)


def test_empty_batches() -> None:
    with pytest.raises(BatchError, match="the batch is empty"):
        checked(Inputs((torch.zeros(0, 3),), {}))
    with pytest.raises(BatchError, match="has no tensor"):
        checked(Inputs((), {"x": [1, 2]}))
