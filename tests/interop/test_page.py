"""The blocks marked `py` in the page about other libraries run, in their order and in one program."""

import os
import subprocess
import sys
from pathlib import Path

from tests.helpers.fake_hub import fake_hub
from tests.helpers.pages import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "interop.md"
TOKEN = "hf_made_up"


def test_what_the_page_shows_runs(tmp_path: Path) -> None:
    program = [block for kind, block in blocks(PAGE) if kind == "py"]
    assert len(program) > 4
    with fake_hub(TOKEN) as hub:
        settings = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "hub"), "HF_TOKEN": TOKEN}
        settings |= {"MLFLOW_TRACKING_URI": (tmp_path / "mlflow").as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}
        settings |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "NO_PROXY": "127.0.0.1"}
        done = subprocess.run(
            [sys.executable, "-c", "\n".join(program)],
            cwd=tmp_path,
            env=os.environ | settings,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert set(hub.files("north/rates")) == {"README.md", "rates.safetensors"}
