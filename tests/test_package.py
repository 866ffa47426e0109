"""What people install: wheel and source archive, built and run away from the repository."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path

import pytest

from ttpfl import __version__

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
EXTRAS = ("PIL", "flwr", "huggingface_hub", "matplotlib", "mlxtend", "onnxruntime", "scipy", "sklearn")

FIVE_LINES = """
import torch, ttpfl
model = ttpfl.models.shallow_cnn(num_classes=10)
sources = [(torch.randn(20, 3, 32, 32), torch.randint(10, (20,))) for _ in range(2)]
rates = ttpfl.learn_rates(model, sources, rounds=1)
logits = ttpfl.Personalizer(model, rates, mode="online")(torch.randn(20, 3, 32, 32))
"""


def run(*command: str | Path, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(next(built.glob("*.whl")))


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs programs of an environment that has the wheel, and of everything else only the dependencies."""
    home = tmp_path_factory.mktemp("elsewhere")
    run(sys.executable, "-m", "venv", "--without-pip", "env", cwd=home)
    programs = home / "env" / ("Scripts" if os.name == "nt" else "bin")
    pip = [sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet"]
    run(*pip, "--no-deps", "--no-index", next(built.glob("*.whl")), cwd=home)
    site = run(programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home)
    # A path in a .pth file comes last, and the .pth files in it are not read: no editable installation.
    dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(site.strip(), "dependencies.pth").write_text("\n".join(dependencies))
    return lambda program, *arguments: run(programs / program, *arguments, cwd=home)


def test_the_wheel_has_all_of_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    ours = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*") if path.is_file()}
    ours = {name for name in ours if "__pycache__" not in name}
    ours |= {f"ttpfl/recipes/{path.name}" for path in (ROOT / "recipes").glob("*.toml")}
    about = f"ttpfl-{__version__}.dist-info/"
    assert {name for name in wheel.namelist() if not name.startswith(about)} == ours
    assert ours >= {
        "ttpfl/py.typed",
        "ttpfl/recipes/demo.toml",
        "ttpfl/report/page.css",
        "ttpfl/report/page.js",
        "ttpfl/flower/app/pyproject.toml",
        "ttpfl/flower/templates/site.toml",
    }
    assert wheel.read(f"{about}licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    metadata = Parser().parsestr(wheel.read(f"{about}METADATA").decode())
    assert metadata["Version"] == __version__
    assert sum(entry.file_size for entry in wheel.infolist()) < 3e6  # no data and no weights


def test_the_repository_builds_the_same_wheel(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as direct:
        assert {name: direct.read(name) for name in direct.namelist()} == {
            name: wheel.read(name) for name in wheel.namelist()
        }


def test_the_source_archive_has_what_tests_need(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {"tests/test_package.py", "examples/README.md", "docs/architecture.md", "CITATION.cff"}
    unwanted = {name for name in names if name.endswith((".safetensors", ".npy", ".pyc", ".pt", ".onnx"))}
    assert not [name for name in unwanted if not name.startswith("tests/old_version/")]


def test_the_installed_program_runs(installed: Callable[..., str]) -> None:
    assert installed("ttpfl", "--version") == f"ttpfl {__version__}\n"
    assert "Usage: ttpfl demo" in installed("ttpfl", "demo", "--help")
    assert "table5-cifar10-cnn" in installed("ttpfl", "recipe", "list")


def test_five_lines_run_with_nothing_but_the_dependencies(installed: Callable[..., str]) -> None:
    block = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r}))\n"  # importing them is an error now
    output = installed("python", "-c", block + FIVE_LINES + "print(ttpfl.__file__, *logits.shape)")
    file, *shape = output.split()
    assert Path(file).parts[-3:-1] == ("site-packages", "ttpfl")
    assert not Path(file).is_relative_to(ROOT)
    assert not Path(file).is_relative_to(sysconfig.get_path("purelib"))
    assert shape == ["20", "10"]
