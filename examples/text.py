"""Use text: an embedding with LayerNorm that classifies lines of documentation.

The corpus comes with the extra `data`: docstrings of scipy and scikit-learn, read as text without importing
them. The label of a line is the heading above it (parameters, results, notes, ...), to be predicted from
the line alone. Source clients are packages of scipy; new clients are packages of scikit-learn, whose
authors use other words and conventions. That shift is real. The mix of headings, different for each client,
is synthetic.
"""

import ast
import re
import zlib
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn

from ttpfl import Personalizer, Rates, learn_rates

HEADINGS = ("Parameters", "Returns", "Notes", "References", "Examples", "See Also")
HEADING = re.compile(r"^ *([A-Z][A-Za-z ]+)\n *-{3,} *$", re.MULTILINE)
WORDS, LENGTH = 4096, 24
Client = tuple[Tensor, Tensor]


def labelled_lines(package: Path) -> Iterator[tuple[str, int]]:
    """Lines of all docstrings below a folder, with the index of their heading."""
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
    """Words and punctuation as numbers from 1, padded with 0."""
    ids = [1 + zlib.crc32(word.encode()) % (WORDS - 1) for word in re.findall(r"\w+|[^\w\s]", line.lower())]
    return (ids + [0] * LENGTH)[:LENGTH]


def clients_of(library: str, lines: int, seed: int) -> list[tuple[Client, Client]]:
    """Each package of a library as two clients, with different lines but the same mix of headings."""
    root = Path(find_spec(library).submodule_search_locations[0])
    random = np.random.default_rng(seed)
    clients = []
    for package in sorted(path.parent for path in root.glob("[a-z]*/__init__.py")):
        labelled = list(islice(labelled_lines(package), 20 * lines))
        if len(labelled) < 200 or package.name == "externals":  # too few lines, or vendored code
            continue
        x, y = np.array([tokens(line) for line, _ in labelled]), np.array([label for _, label in labelled])
        mix = random.dirichlet([0.4] * len(HEADINGS)) / np.bincount(y, minlength=len(HEADINGS)).clip(1)
        first = random.random(len(y)) < 0.7
        parts = [mix[y] * first, mix[y] * ~first]
        rows = [random.choice(len(y), lines, p=part / part.sum()) for part in parts]
        clients.append(tuple((torch.from_numpy(x[drawn]), torch.from_numpy(y[drawn])) for drawn in rows))
    return clients


class TextNet(nn.Module):
    """The mean word embedding, followed by two layers."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=0)
        self.norm1, self.hidden = nn.LayerNorm(width), nn.Linear(width, width)
        self.norm2, self.head = nn.LayerNorm(width), nn.Linear(width, len(HEADINGS))

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of lines."""
        mean = self.words(x).sum(1) / (x > 0).sum(1, keepdim=True)
        return self.head(self.norm2(self.hidden(self.norm1(mean)).relu()))


def trained(model: nn.Module, clients: Sequence[Client], epochs: int) -> nn.Module:
    """Plain centralised training. Rates can be learned for any trained model."""
    x, y = (torch.cat(part) for part in zip(*clients, strict=True))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(y)).split(50):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model.eval()


def accuracy(model: nn.Module, rates: Rates, clients: Sequence[Client]) -> float:
    """Mean accuracy over clients, each with a fresh personalizer and batches of 20 lines."""
    accuracies = []
    for x, y in clients:
        personal = Personalizer(model, rates, mode="online")
        predictions = torch.cat([personal(batch).argmax(1) for batch in x.split(20)])
        accuracies.append(float((predictions == y).float().mean()))
    return float(np.mean(accuracies))


def main(rounds: int = 3, lines: int = 250) -> None:
    """Train on scipy, learn rates, and evaluate scikit-learn with and without adaptation."""
    torch.manual_seed(0)
    known, held_back = zip(*clients_of("scipy", lines, seed=0), strict=True)
    new = [first for first, _ in clients_of("sklearn", lines, seed=1)]
    model = trained(TextNet(), known, epochs=rounds)
    rates = learn_rates(model, held_back, prior=True)  # clients differ in the mix of headings
    print(rates, "\n")

    print(f"accuracy at {len(new)} new clients")
    print(f"  no adaptation: {accuracy(model, Rates.zeros(model), new):.1%}")
    print(f"  ATP-online:    {accuracy(model, rates, new):.1%}")


if __name__ == "__main__":
    typer.run(main)
