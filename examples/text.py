"""Text: an embedding with LayerNorm that tells what a line of documentation is about.

The corpus is on every machine that has the extra `data`: docstrings of scipy and scikit-learn, read as text
without importing them. Their headings say what a line belongs to (parameters, results, notes, ...), and a
network has to find it from the line alone. Source clients are packages of scipy; new clients are packages of
scikit-learn, whose authors have other words and other habits. Nothing about this shift is made up.
"""

import ast
import re
import zlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import torch
import typer
from torch import Tensor, nn

from ttpfl import Personalizer, Rates, learn_rates
from ttpfl.federation import TrainSettings, train

HEADINGS = ("Parameters", "Returns", "Notes", "References", "Examples", "See Also")
HEADING = re.compile(r"^ *([A-Z][A-Za-z ]+)\n *-{3,} *$", re.MULTILINE)
WORDS, LENGTH = 4096, 24
Client = tuple[Tensor, Tensor]


def labelled_lines(package: Path) -> Iterator[tuple[str, int]]:
    """Lines of all docstrings below a folder, with the number of the heading that they stand under."""
    for path in sorted(package.rglob("*.py")):
        if "tests" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                parts = HEADING.split(ast.get_docstring(node) or "")
                for heading, body in zip(parts[1::2], parts[2::2], strict=True):
                    if heading in HEADINGS:
                        lines = (line.strip() for line in body.splitlines())
                        yield from ((line, HEADINGS.index(heading)) for line in lines if len(line) > 20)


def tokens(line: str) -> list[int]:
    """Words and signs as numbers from 1; 0 fills up."""
    found = [1 + zlib.crc32(word.encode()) % (WORDS - 1) for word in re.findall(r"\w+|[^\w\s]", line.lower())]
    return (found + [0] * LENGTH)[:LENGTH]


def clients_of(library: str, lines: int) -> dict[str, Client]:
    """One client per package of a library, with so many lines of it, drawn at random."""
    root = Path(find_spec(library).submodule_search_locations[0])
    clients = {}
    for package in sorted(path.parent for path in root.glob("[a-z]*/__init__.py")):
        found = list(labelled_lines(package))
        if len(found) >= 200 and package.name != "externals":  # that is copied from elsewhere
            drawn = [found[i] for i in torch.randperm(len(found))[:lines]]
            x = torch.tensor([tokens(line) for line, _ in drawn])
            clients[package.name] = x, torch.tensor([label for _, label in drawn])
    return clients


class TextNet(nn.Module):
    """The mean of the words' vectors, and two layers on it."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=0)
        self.norm1, self.hidden = nn.LayerNorm(width), nn.Linear(width, width)
        self.norm2, self.head = nn.LayerNorm(width), nn.Linear(width, len(HEADINGS))

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of lines."""
        mean = self.words(x).sum(1) / (x > 0).sum(1, keepdim=True)
        return self.head(self.norm2(self.hidden(self.norm1(mean)).relu()))


def accuracy(model: nn.Module, rates: Rates, clients: dict[str, Client]) -> float:
    """Mean over clients; each gets a fresh personalizer, and its lines come 20 at a time."""
    right = []
    for x, y in clients.values():
        personal = Personalizer(model, rates, mode="online")
        answers = torch.cat([personal(batch).argmax(1) for batch in x.split(20)])
        right.append(float((answers == y).float().mean()))
    return sum(right) / len(right)


def main(rounds: int = 30, rate_rounds: int = 20, lines: int = 600) -> None:
    """Train over scipy's packages, learn rates, and look at scikit-learn's with and without adaptation."""
    torch.manual_seed(0)
    sources, new = clients_of("scipy", lines), clients_of("sklearn", lines)
    part = {name: int(0.7 * len(y)) for name, (_, y) in sources.items()}
    to_train = {name: (x[: part[name]], y[: part[name]]) for name, (x, y) in sources.items()}
    held_back = {name: (x[part[name] :], y[part[name] :]) for name, (x, y) in sources.items()}

    model, _ = train(TextNet(), to_train, TrainSettings(rounds=rounds, lr=0.5, workers=0))
    rates = learn_rates(model, held_back, rounds=rate_rounds, lr=0.1, mode="online")
    print(rates, "\n")
    for clients, what in ((held_back, "source clients, lines held back"), (new, "new clients")):
        print(f"accuracy at {len(clients)} {what}")
        print(f"  no adaptation: {accuracy(model, Rates.zeros(model), clients):.1%}")
        print(f"  ATP-online:    {accuracy(model, rates, clients):.1%}")


if __name__ == "__main__":
    typer.run(main)
