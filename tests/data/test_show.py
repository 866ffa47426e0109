"""The picture of a population, read back from its pixels."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ttpfl.data import dataset_info, federate
from ttpfl.data.client_arrays import ClientArrays, ClientData, client_arrays
from ttpfl.data.federate import Federated
from ttpfl.data.show import show, varied

COLOURS = [(200, 30, 30), (30, 200, 30), (30, 30, 200), (200, 200, 30)]


def site(colour: tuple[int, int, int], labels: list[int] | None, count: int = 12) -> ClientData:
    x = np.broadcast_to(np.array(colour, np.uint8), (count, 8, 8, 3)).copy()
    return ClientData(x, None if labels is None else np.resize(labels, count).astype(np.int64))


@pytest.fixture
def own() -> ClientArrays:
    source = {"north": site(COLOURS[0], [0]), "west": site(COLOURS[1], [0, 1])}
    target = {"south": site(COLOURS[2], [1], 5), "ea$t_1$": site(COLOURS[3], None)}
    return client_arrays(source, target, dataset_info("arrays"), ("cat", "dog"))


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB")).astype(int)


def area(picture: np.ndarray, colour: tuple[int, int, int]) -> tuple[int, float, float]:
    """How many pixels have this colour, and the middle of them. Thin lines and letters do not count."""
    alike = np.abs(picture - colour).max(2) <= 2
    inner = np.lib.stride_tricks.sliding_window_view(alike, (3, 3)).all((2, 3))
    rows, columns = np.nonzero(inner)
    return len(rows), float(np.mean(rows)), float(np.mean(columns))


def test_each_client_has_a_row_of_its_images(own: ClientArrays, tmp_path: Path) -> None:
    show(federate(own, data_dir=tmp_path / "data"), tmp_path / "new" / "clients.png")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["clients.png"]
    picture = pixels(tmp_path / "new" / "clients.png")
    areas = [area(picture, colour) for colour in COLOURS]
    sizes, rows, columns = zip(*areas, strict=True)
    assert list(rows) == sorted(rows)  # source above target, in their order
    assert max(columns) < picture.shape[1] / 2
    assert sizes[2] == pytest.approx(sizes[3] / 2, rel=0.03)  # 5 images against 10
    assert sizes[0] == pytest.approx(sizes[1], rel=0.03)


def test_heat_map_shows_counts_and_unknown_labels(
    own: ClientArrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib import colormaps

    monkeypatch.setattr("ttpfl.data.show.COUNTED", 0)  # no numbers over the colours
    show(federate(own, data_dir=tmp_path), tmp_path / "clients.png")
    picture = pixels(tmp_path / "clients.png")
    right = picture[:, picture.shape[1] // 2 : picture.shape[1] * 9 // 10]
    # Counts are north (12, 0), west (6, 6), south (0, 5), and east is not known; colours follow the root.
    cells = {}
    for count in (12, 6, 5):
        colour = tuple(round(255 * part) for part in colormaps["viridis"]((count / 12) ** 0.5)[:3])
        cells[count] = area(right, colour)
    gray = area(right, (211, 211, 211))
    zero = area(right, (68, 1, 84))
    assert cells[6][0] == pytest.approx(2 * cells[12][0], rel=0.05)
    assert gray[0] == pytest.approx(2 * cells[5][0], rel=0.05)
    assert zero[0] == pytest.approx(2 * cells[5][0], rel=0.05)
    assert cells[12][1] < cells[6][1] < cells[5][1] < gray[1]
    assert cells[12][2] < cells[6][2] < cells[5][2]  # cat, both, dog


@pytest.mark.parametrize("part", ["source", "target"])
def test_only_one_kind_of_client(own: ClientArrays, tmp_path: Path, part: str) -> None:
    kept = {"source": {}, "target": {}, part: getattr(own, part)}
    show(federate(ClientArrays(**kept, info=own.info), data_dir=tmp_path), tmp_path / "one.png")
    assert area(pixels(tmp_path / "one.png"), COLOURS[0 if part == "source" else 2])[0] > 0


def test_many_clients(tmp_path: Path) -> None:
    crowd = federate(
        "digits", shift="feature", replacement=True, source_clients=2500, target_clients=1200, samples=10
    )
    show(crowd, tmp_path / "crowd.png")
    assert pixels(tmp_path / "crowd.png").shape[0] < 1300


def test_shown_clients_differ() -> None:
    target = federate("digits", shift="hybrid", source_clients=20, target_clients=25).population.target
    shown = [target[number].corruption for number in varied(target, 4)]
    assert len({corruption.name for corruption in shown if corruption}) == 4
    assert varied(target[:2], 4) == [0, 1]


def test_nothing_is_left_after_an_error(own: ClientArrays, tmp_path: Path) -> None:
    made = federate(own, data_dir=tmp_path / "data")
    folder = tmp_path / "out"
    (folder / "taken.png").mkdir(parents=True)
    with pytest.raises(OSError, match=r"taken\.png"):
        show(made, folder / "taken.png")
    assert [path.name for path in folder.iterdir()] == ["taken.png"]


def test_old_picture_survives_an_error(
    own: ClientArrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    def fail(self: Figure, file: object, **_: object) -> None:
        raise OSError("disk full")

    path = tmp_path / "clients.png"
    path.write_bytes(b"old")
    made: Federated = federate(own, data_dir=tmp_path / "data")
    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        show(made, path)
    assert path.read_bytes() == b"old"
    assert sorted(found.name for found in tmp_path.iterdir()) == ["clients.png", "data"]
