"""The picture of a population, read back from its pixels."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from tests.helpers.persons import write_signals, write_table
from ttpfl.data import dataset_info, federate
from ttpfl.data.client_arrays import ClientArrays, ClientData, client_arrays
from ttpfl.data.federate import Federated
from ttpfl.data.images import DatasetInfo
from ttpfl.data.show import show, varied
from ttpfl.data.show_samples import draw_samples, name_features

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


def info_of(*shape: int) -> DatasetInfo:
    mean, std = (2.0,) * shape[0], (0.5,) * shape[0]
    return replace(dataset_info("arrays"), shape=shape, mean=mean, std=std, classes=("a", "b"))


def test_signals_are_lines_within_four_deviations() -> None:
    ax = Figure().subplots()
    x = np.stack([[[2.0, 4.0, 0.0]], [[2.5, 99.0, -99.0]]])  # two signals of one client
    centres, words = draw_samples(ax, [x, x[:1]], info_of(1, 3), columns=10)
    assert (centres, words) == ([0.5, 1.5], "some signals")
    first, second, other = (line.get_ydata() for line in ax.lines)
    assert np.allclose(first, [0.5, 0.05, 0.95])  # the mean, four deviations above and below
    assert np.allclose(second, [0.5 - 0.45 / 4, 0.05, 0.95])  # cut off at the edges
    assert np.allclose(other, first + 1)
    assert ax.get_ylim() == (2, 0)
    assert draw_samples(ax, [np.zeros((1, 2, 3))], info_of(2, 3), 10)[1] == "some signals, a line per channel"


def test_tables_are_quantiles_of_each_feature() -> None:
    ax = Figure().subplots()
    x = np.stack([np.linspace(1, 3, 101), np.full(101, 2.5)], 1)
    centres, words = draw_samples(ax, [x], info_of(2), columns=10)
    assert (centres, "quantiles" in words) == ([0.5], True)
    (median,) = (line.get_ydata() for line in ax.lines if line.get_marker() == "_")
    assert np.allclose(median, [0.5, 0.5 - 0.45 / 4])
    heights = [bar.get_height() for bar in ax.patches]
    assert np.allclose(heights, [-0.45 * 2 / 4, 0])  # the middle half is two deviations wide


def test_maps_of_all_clients_are_on_one_gray_scale() -> None:
    ax = Figure().subplots()
    quiet, loud = (np.full((1, 1, 20, 20), value) for value in (2.0, 4.0))
    _, words = draw_samples(ax, [quiet, loud], info_of(1, 20, 20), columns=1)
    (sheet,) = (image.get_array() for image in ax.images)
    upper, lower = np.split(np.asarray(sheet), 2)
    assert words == "some samples"
    assert (upper == 0).all(2).sum() == (lower == 255).all(2).sum() - (upper == 255).all(2).sum() == 400


def test_features_are_named_below_a_table(tmp_path: Path) -> None:
    ax, info = Figure().subplots(), replace(info_of(2), features=("blood pressure", "pulse"))
    draw_samples(ax, [np.zeros((5, 2))], info, columns=10)
    name_features(ax, info)
    names = [text.get_text() for text in ax.get_xticklabels()]
    assert (names, list(ax.get_xticks())) == (["blood pressure", "pulse"], [0.5, 1.5])


def test_every_kind_of_data_can_be_shown(tmp_path: Path) -> None:
    write_signals(tmp_path / "signals")
    write_table(tmp_path / "table" / "table.csv")
    x = np.random.default_rng(0).normal(size=(30, 1, 12, 9))
    (tmp_path / "spectra").mkdir()
    np.savez(tmp_path / "spectra" / "data.npz", x=x, y=np.arange(30) % 2, client=np.repeat([1, 2, 3], 10))
    for kind, name, choices in (
        ("signals", "arrays", {}), ("table", "table", {}), ("spectra", "arrays", {"folds": 3}),
    ):  # fmt: skip
        show(federate(name, data_dir=tmp_path / kind, **choices), tmp_path / f"{kind}.png")
        sheet = pixels(tmp_path / f"{kind}.png")
        assert (sheet[:, : sheet.shape[1] // 2] < 200).any(2).sum() > 1000  # something is drawn on the left
