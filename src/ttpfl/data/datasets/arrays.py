"""The user's own arrays: one npz file per client."""

from pathlib import Path

from ttpfl.data.client_arrays import ClientArrays, ClientData, client_arrays, numbered_classes, own_info
from ttpfl.data.option_types import ImageSize, Names
from ttpfl.data.pictures import Size, as_size, resized
from ttpfl.data.registry import dataset
from ttpfl.data.storage import read_images
from ttpfl.errors import DataMissingError

ARRAYS = own_info(
    name="arrays",
    title="Your own arrays, in one npz file per client",
    channels="RGB; gray is repeated to RGB",
    licence="yours",
    instructions="your files as source/<client>.npz and target/<client>.npz, each with images x (uint8, "
    "(N, H, W) or (N, H, W, 3)) and labels y (integers from 0; optional for targets)",
    places=("source/*.npz",),
)


@dataset(ARRAYS)
def arrays(directory: Path, image_size: ImageSize = None, classes: Names = None) -> ClientArrays:
    """All clients below `directory`. `classes` names the labels.

    Without `classes`, they are named by number, and every label from 0 to the highest must occur.
    """
    size = as_size(image_size)
    source, target = _clients(directory / "source", size), _clients(directory / "target", size)
    if not source:
        raise DataMissingError(f"there are no npz files in {directory / 'source'}")
    if classes is None:
        labels = [y for _, y in [*source.values(), *target.values()] if y is not None]
        classes = numbered_classes(labels, "list all classes with the option classes")
    return client_arrays(source, target, ARRAYS, tuple(classes))


def _clients(folder: Path, size: Size | None) -> dict[str, ClientData]:
    clients = {}
    for path in sorted(folder.glob("*.npz")):
        x, y = read_images(path)
        clients[path.stem] = ClientData(resized(x, size or (x.shape[1], x.shape[2])), y)
    return clients
