"""Predictions for samples in files, such as signals and rows of a table, as in `ttpfl personalize`."""

from collections.abc import Callable, Iterable, Iterator
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from ttpfl.core.direction import check_finite
from ttpfl.data.array_files import read_samples
from ttpfl.data.csv_files import read_csv
from ttpfl.data.samples import as_input
from ttpfl.errors import BatchError, DataError, noted
from ttpfl.folder_stream import Prediction, predictions
from ttpfl.models.signature import Signature
from ttpfl.util.settings_kit import integer


def predict_samples(
    predictor: Callable[[Tensor], Tensor],
    paths: Iterable[str | PathLike[str]],
    signature: Signature,
    batch_size: int = 20,
) -> Iterator[Prediction]:
    r"""Yield predictions for all samples of the files in their order, batch by batch.

    A file is a CSV file with the columns of the model's features, an npz file with samples `x`, or an npy
    file, which is memory-mapped. The path of a prediction has the number of the sample, from 0.

    Args:
        predictor: maps a batch to logits; a `Personalizer` also adapts.
        paths: the files; a batch does not reach from one into the next.
        signature: input format and classes of the network.
        batch_size: samples per batch; the last batch of a file can be smaller.

    >>> import tempfile, torch
    >>> path = Path(tempfile.mkdtemp(), "new.csv")
    >>> _ = path.write_text("site,age\nnorth,30\nnorth,70\n")
    >>> signature = Signature(("young", "old"), (0, 0), (50.0,), (10.0,), (1,), features=("age",))
    >>> for prediction in predict_samples(lambda x: torch.cat([-x, x], 1), [path], signature):
    ...     print(prediction.path.rpartition("#")[2], prediction.label)
    0 young
    1 old
    """
    integer(1).check(BatchError, batch_size=batch_size)
    for path in paths:
        samples = _samples(Path(path), signature)
        for start in range(0, len(samples), batch_size):
            part = samples[start : start + batch_size]
            numbers = range(start, start + len(part))
            names = [f"{fspath(path)}#{number}" for number in numbers]
            with noted(f"in {fspath(path)}, from sample {start}"):
                logits = check_finite(predictor(as_input(part, signature, numbers)))
            yield from predictions(logits, names, signature)


def _samples(path: Path, signature: Signature) -> NDArray[Any]:
    suffix = path.suffix.lower()
    if suffix == ".csv" or (signature.features and suffix not in (".npz", ".npy")):
        if not signature.features:
            raise DataError(f"{path} is a table, but the model names no features: pass an npz or npy file")
        samples: NDArray[Any] = read_csv(path).numbers(signature.features)
    else:
        samples = read_samples(path)
    if samples.shape[1:] != signature.shape or samples.dtype.kind not in "iuf":
        raise DataError(
            f"{path} has samples of {samples.dtype} {samples.shape[1:]}, but the model needs numbers of "
            f"shape {signature.shape}"
        )
    return samples
