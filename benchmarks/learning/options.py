"""Options that all studies of rate learning share."""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from learning.problems import PROBLEMS, Folders

FOUR_KINDS = ("har", "ecg", "digits-demo", "cifar10")


def study_parser(description: str | None, problems: Sequence[str] = FOUR_KINDS) -> argparse.ArgumentParser:
    """A parser with the options of a study; `problems` are studied by default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--natural", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--models", type=Path, default=Path(tempfile.gettempdir()) / "ttpfl-learner")
    parser.add_argument("--problems", nargs="+", default=list(problems), choices=list(PROBLEMS))
    return parser


def folders_of(options: argparse.Namespace) -> Folders:
    """The folders of a study, which computes with one thread per process."""
    torch.set_num_threads(1)
    return Folders(options.data_dir or options.natural, options.natural, options.models)
