"""Rates on the Hugging Face Hub: the only part of the core that uses the network, and only when called."""

import importlib
import tempfile
from abc import ABC, abstractmethod
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Self

from torch import nn

from ttpfl.core import rates_card
from ttpfl.core.rates_file import check_size
from ttpfl.errors import RatesError, RatesFileError

FILE, README = "rates.safetensors", "README.md"


class OnTheHub(ABC):
    """What a class with files of rates needs to share them."""

    @property
    @abstractmethod
    def cost(self) -> float:
        """Expected cost of personalising a batch."""

    @abstractmethod
    def checked(self) -> Self:
        """Return itself if it is valid."""

    @abstractmethod
    def table(self) -> str:
        """Format every rate."""

    @abstractmethod
    def save(self, path: str | PathLike[str]) -> None:
        """Write a file."""

    @classmethod
    @abstractmethod
    def load(cls, path: str | PathLike[str], model: nn.Module | None = None) -> Self:
        """Read a file; check that it fits the model."""

    def push_to_hub(
        self,
        repo_id: str,
        *,
        license: str | None = None,
        base_model: str | None = None,
        readme: bool = True,
        private: bool | None = None,
        revision: str | None = None,
        token: str | None = None,
    ) -> str:
        """Upload the rates to a model repository of the Hugging Face Hub; return the address of the commit.

        Needs the extra `hub`. The files are a rates file (safetensors) and a README. `HF_ENDPOINT` chooses
        another server.

        Args:
            repo_id: `owner/name`; the repository is created if it does not exist.
            license: identifier of the licence of the rates, such as "cc-by-4.0".
            base_model: repository of the model that the rates are for.
            readme: whether to write README.md: what the rates fit, and what source clients showed. One that
                exists is replaced.
            private: whether a new repository is private; the owner's default if None.
            revision: branch that exists; "main" if None.
            token: access token; the one of `hf auth login` if None.
        """
        fields = {**vars(self.checked()), "cost": self.cost}
        page = rates_card.page(repo_id, fields, self.table(), license, base_model)
        hub = _hub()
        api = hub.HfApi(token=token, library_name="ttpfl")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, FILE)
            self.save(path)
            files = {FILE: path.read_bytes()} | ({README: page.encode()} if readme else {})
        adding = [hub.CommitOperationAdd(name, content) for name, content in files.items()]
        api.create_repo(repo_id, private=private, exist_ok=True)
        message = "Upload rates of ttpfl"
        return str(api.create_commit(repo_id, adding, commit_message=message, revision=revision).commit_url)

    @classmethod
    def from_hub(
        cls,
        repo_id: str,
        model: nn.Module | None = None,
        *,
        revision: str | None = None,
        token: str | None = None,
    ) -> Self:
        """Download rates that `push_to_hub` has uploaded, and check them as `load` does.

        Needs the extra `hub`. The file is kept in the Hub's cache; without a network, that one is used.
        Nothing is downloaded if the server states no size, or a larger one than rates files have.

        Args:
            repo_id: `owner/name`.
            model: check that the rates fit it.
            revision: branch, tag or commit; "main" if None. A commit always has the same file.
            token: access token for private repositories; the one of `hf auth login` if None.
        """
        download = _hub().hf_hub_download
        options = {"revision": revision, "token": token, "library_name": "ttpfl"}
        size, what = download(repo_id, FILE, dry_run=True, **options).file_size, f"{FILE} of {repo_id!r}"
        if size is None:
            raise RatesFileError(
                f"{what} is not downloaded, since the server does not state its size: "
                "download it yourself, and use Rates.load"
            )
        check_size(size, what)
        return cls.load(download(repo_id, FILE, **options), model)  # it checks the size of what came


def _hub() -> ModuleType:
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        remedy = 'pip install "ttpfl[hub]", or pip install huggingface_hub'
        raise RatesError(f"huggingface_hub is not installed: {remedy}") from error
