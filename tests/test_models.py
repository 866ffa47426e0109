"""The model factories and the files they read."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import ttpfl
from tests.helpers.real_data import SHARED, needed
from ttpfl.errors import ModelError
from ttpfl.models import Signature, build
from ttpfl.models.build import arguments_for

# The state keys of torchvision's ResNets begin and end like this (torchvision 0.2x documentation).
KEYS_18 = ["conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var"]


def test_shallow_cnn_is_the_papers() -> None:
    model = ttpfl.models.shallow_cnn(10)
    shapes = {k: tuple(v.shape) for k, v in model.state_dict().items() if v.ndim > 1}
    assert shapes == {
        "conv1.weight": (32, 3, 3, 3),
        "conv2.weight": (64, 32, 3, 3),
        "conv3.weight": (64, 64, 3, 3),
        "linear4.weight": (64, 1024),
        "linear5.weight": (10, 64),
    }
    assert ttpfl.models.shallow_cnn(4, in_channels=1, image_size=28)(torch.zeros(2, 1, 28, 28)).shape == (
        2,
        4,
    )
    with pytest.raises(ttpfl.ModelError, match="image_size is 17"):
        ttpfl.models.shallow_cnn(10, image_size=17)


def test_resnets_have_torchvisions_keys() -> None:
    resnet18, resnet50 = ttpfl.models.resnet18(1000), ttpfl.models.resnet50(1000)
    assert list(resnet18.state_dict())[:5] == KEYS_18
    assert sum(p.numel() for p in resnet18.parameters()) == 11_689_512
    assert sum(p.numel() for p in resnet50.parameters()) == 25_557_032
    assert len(resnet18.state_dict()) == 122
    assert len(resnet50.state_dict()) == 320
    shapes = {k: tuple(v.shape) for k, v in resnet50.state_dict().items()}
    assert shapes["layer1.0.downsample.0.weight"] == (256, 64, 1, 1)
    assert shapes["layer4.2.conv3.weight"] == (2048, 512, 1, 1)
    assert resnet50.layer2[0].conv2.stride == (2, 2)
    assert resnet18(torch.zeros(2, 3, 32, 32)).shape == (2, 1000)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_weights_from_a_file(
    tmp_path: Path, suffix: str, dtype: torch.dtype, caplog: pytest.LogCaptureFixture
) -> None:
    source = ttpfl.models.resnet18(7)
    state = {k: v.to(dtype) if v.is_floating_point() else v for k, v in source.state_dict().items()}
    path = tmp_path / f"w{suffix}"
    save = save_file if suffix == ".safetensors" else torch.save
    save(state, path)
    caplog.set_level(logging.INFO, "ttpfl")
    same = ttpfl.models.resnet18(7, weights=path)
    assert all(torch.equal(v.to(state[k].dtype), state[k]) for k, v in same.state_dict().items())
    assert same.conv1.weight.dtype == torch.float32
    assert not caplog.records
    other = ttpfl.models.resnet18(5, weights=path)
    assert torch.equal(other.layer4[1].conv2.weight.to(dtype), state["layer4.1.conv2.weight"])
    assert "no classifier of this size: keeping the new fc.weight, fc.bias" in caplog.text
    del state["fc.weight"], state["fc.bias"]
    save(state, path)
    assert ttpfl.models.resnet18(7, weights=path).fc.weight.shape == (7, 512)


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    state = ttpfl.models.resnet18(7).state_dict()
    save_file({k: v for k, v in state.items() if k != "layer2.0.bn1.bias"}, path)
    with pytest.raises(ttpfl.ModelError, match=r"w.safetensors has no 'layer2.0.bn1.bias'"):
        ttpfl.models.resnet18(7, weights=path)
    with pytest.raises(ttpfl.ModelError, match=r"'layer1.0.conv1.weight' has shape \(64, 64, 3, 3\)"):
        ttpfl.models.resnet50(7, weights=path)
    save_file(state | {"extra": torch.zeros(1)}, path)
    with pytest.raises(ttpfl.ModelError, match="has 'extra', which this architecture does not have"):
        ttpfl.models.resnet18(7, weights=path)
    for content in (b"", b"junk", path.read_bytes()[:5000]):
        for name in ("bad.safetensors", "bad.pth"):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(ttpfl.ModelError, match="cannot be read as weights") as caught:
                ttpfl.models.resnet18(7, weights=tmp_path / name)
            assert "weights_only" not in str(caught.value)  # torch's advice to run what is in the file
    torch.save([1, 2], tmp_path / "bad.pth")
    with pytest.raises(ttpfl.ModelError, match="not a plain state dict"):
        ttpfl.models.resnet18(7, weights=tmp_path / "bad.pth")
    with pytest.raises(FileNotFoundError):
        ttpfl.models.resnet18(7, weights=tmp_path / "missing.pth")


IMAGENET = SHARED / "data" / "resnet18_imagenet_backbone_fp16.pth"


def test_imagenet_backbone_loads() -> None:
    needed(IMAGENET)
    model = ttpfl.models.resnet18(10, weights=IMAGENET)
    stored = torch.load(IMAGENET, weights_only=True)
    assert torch.equal(model.layer3[0].conv1.weight.half(), stored["layer3.0.conv1.weight"].half())
    assert not torch.equal(model.bn1.running_var, torch.ones(64))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("os:getcwd", "is a str: it must be a torch.nn.Module"),
        ("os:name", "is not a function with known parameters"),
        ("builtins:dict", "is not a function with known parameters"),
    ],
)
def test_what_is_no_network_is_refused(name: str, said: str) -> None:
    with pytest.raises(ttpfl.ModelError, match=f"the model '{name}' {said}"):
        ttpfl.models.build(name, num_classes=3)


def test_an_own_network_learns_which_parameters_it_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "network_of_mine.py").write_text("def build(classes): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    advice = r"'classes'; its parameters can be num_classes, input_shape$"
    with pytest.raises(ModelError, match=advice):
        ttpfl.models.build("network_of_mine:build", num_classes=3, input_shape=[2, 8])


def test_a_file_does_not_decide_which_files_are_read(tmp_path: Path) -> None:
    own, other = tmp_path / "model.safetensors", tmp_path / "other.safetensors"
    model = ttpfl.models.resnet18(3)
    ttpfl.models.save_model(other, model)
    build = {"name": "resnet18", "num_classes": 3, "weights": str(other)}
    ttpfl.models.save_model(own, model, build=build)
    with pytest.raises(ttpfl.ModelError, match="names the file"):
        ttpfl.models.load_model(own)


@pytest.mark.parametrize(
    ("name", "shape", "wrong"),
    [
        ("signal_cnn", (3, 20), (3, 4)),
        ("beat_cnn", (3, 20), (2, 20)),
        ("mlp", (13,), None),
        ("sequence_transformer", (2, 50), (13,)),
    ],
)
def test_networks_for_other_data_than_images(
    name: str, shape: tuple[int, ...], wrong: tuple[int, ...] | None
) -> None:
    """They take samples of their shape only, and all their tensors can move."""
    arguments = arguments_for(name, 4, (0, 0), shape)
    model = build(**arguments).eval()
    signature = Signature(tuple("abcd"), (0, 0), (0.0,) * shape[0], (1.0,) * shape[0], shape)
    signature.check_fits(model)
    assert {key for key, _ in model.named_parameters()} <= {*ttpfl.Rates.zeros(model).names}
    if wrong is not None:
        with pytest.raises(ModelError, match="samples have shape"):
            build(**{**arguments, "input_shape": wrong})
    with pytest.raises(ModelError, match=r"does not accept samples of .*|there are 4 classes"):
        replace(signature, shape=(5, *shape), mean=(0.0,) * 5, std=(1.0,) * 5).check_fits(model)


def test_the_beat_cnn_is_a_signal_cnn_with_numbers_beside_it() -> None:
    """Its numbers are the last channels; on the others it computes the features of a signal CNN."""
    torch.manual_seed(0)
    model, x = ttpfl.models.beat_cnn(4, (3, 32)).eval(), torch.randn(5, 3, 32)
    x[:, 1:] = torch.randn(5, 2, 1)
    alone = ttpfl.models.signal_cnn(4, (1, 32)).eval()
    state = {name: value for name, value in model.state_dict().items() if name in alone.state_dict()}
    alone.load_state_dict({**alone.state_dict(), **{n: v for n, v in state.items() if "linear" not in n}})
    weights, bias = model.linear.weight, model.linear.bias
    beside = model.bn4(model.numbers(x[:, 1:, 0])).relu()
    wanted = alone.features(x[:, :1]) @ weights[:, :64].T + beside @ weights[:, 64:].T + bias
    assert torch.allclose(model(x), wanted, atol=1e-5)
    other = x.clone()
    other[:, 1:, 1:] = 7.0  # only the first value in time is read
    assert torch.equal(model(other), model(x))
    assert next(reversed(model._modules)) == "linear"  # methods look for it there


def test_samples_like_square_images_fit_networks_for_images() -> None:
    arguments = arguments_for("shallow_cnn", 4, (0, 0), (1, 20, 20))
    assert build(**arguments).conv1.in_channels == 1
    network = build(**arguments_for("resnet18", 4, (0, 0), (3, 128))).eval()
    signature = Signature(tuple("abcd"), (0, 0), (0.0,) * 3, (1.0,) * 3, (3, 128))
    with pytest.raises(ModelError, match="does not accept samples of 3x128"):
        signature.check_fits(network)
