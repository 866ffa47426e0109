"""What `results.json` and `samples.json` hold: all that a report is drawn from.

Since format 2 both hold a checksum over all the rest, which is verified when they are read.

Accuracies are fractions, but the paper's figures are percent. Keys that are not named here are allowed.
"""

from typing import Any, NotRequired, TypedDict

FORMAT = 2
"""Files of format 1 are read, too: they have no checksum."""
BY_CLIENT = ("accuracy", "loss", "ece", "entropy", "time", "extra_bytes")
"""The keys of an entry with one figure per client, in the order of the run's clients."""

Figures = list[float | None]


class Record(TypedDict, total=False):
    """A round; beside these it has figures of the source clients, such as `train_loss`."""

    round: int
    target: dict[str, float | None] | None
    """Figures of the target clients, in rounds that were evaluated."""
    epsilon: float | None
    """Where rates are learned with privacy: what was spent so far; None if there is no bound."""
    delta: float
    no_bound: str
    """Why there is none."""


class Made(TypedDict, total=False):
    """With what the results were made; beside these, versions."""

    machine: str
    seconds: dict[str, float]
    """Time on the clock by stage."""
    stages: dict[str, list[dict[str, Any]]]
    """The versions that each stage was computed with."""


class Recipe(TypedDict):
    """What was asked."""

    name: str
    title: str
    question: str
    hash: NotRequired[str]
    preset: NotRequired[str | None]
    set: NotRequired[dict[str, Any]]
    command: NotRequired[str]


class Population(TypedDict):
    """The clients as a whole, and the checks of their data that held."""

    name: str
    digest: str
    classes: list[str]
    source_clients: int
    target_clients: int
    checks: list[str]


class Corruption(TypedDict):
    """What was done to a client's images."""

    name: str
    severity: int


class Client(TypedDict):
    """A target client; `labels` counts its images by class."""

    id: str
    domain: str | None
    corruption: Corruption | None
    labels: list[int]
    size: int


class Module(TypedDict):
    """One tensor that can move, and its learned rate."""

    name: str
    kind: str
    block: str
    rate: float


class LearnedRates(TypedDict):
    """Rates, and how they were learned."""

    modules: list[Module]
    history: list[Record]


class Tuning(TypedDict):
    """Hyper-parameters that were tried on source clients; `at_edge` names those chosen at a grid's end."""

    table: list[dict[str, Any]]
    at_edge: list[str]


class Entry(TypedDict):
    """A method that was compared."""

    label: str
    method: str
    config: dict[str, Any]
    tuning: Tuning | None
    rates: LearnedRates | None
    accuracy: list[float]
    loss: Figures
    ece: Figures
    entropy: Figures
    time: Figures
    extra_bytes: Figures


class ToyLine(TypedDict):
    """A rate in the toy example, and the accuracy that it has in closed form."""

    alpha: float
    closed_form: float


class ToyLearned(TypedDict):
    """The rates that were learned there."""

    rates: dict[str, float]
    closed_form: float


class ToyInputs(TypedDict):
    """Counts of samples by class ("-" and "+"), one for each bin, before adaptation."""

    training: dict[str, list[int]]
    testing: dict[str, list[int]]


class ToyHistograms(TypedDict):
    """How samples lie; `after` has one for each rate."""

    edges: list[float]
    before: ToyInputs
    after: list[dict[str, list[int]]]


class ToyExample(TypedDict):
    """What `ttpfl.toy.toy` gives."""

    alphas: list[ToyLine]
    best: ToyLine
    learned: ToyLearned
    histograms: ToyHistograms


class Run(TypedDict):
    """All methods in one case with one seed."""

    case: str
    seed: int
    config: dict[str, Any]
    population: Population
    clients: list[Client]
    training: list[Record]
    entries: list[Entry]
    toy: NotRequired[ToyExample]
    """Where that was the run."""


class Results(TypedDict):
    """`results.json`."""

    format: int
    recipe: Recipe
    made: Made
    paper: dict[str, dict[str, list[float]]]
    runs: list[Run]


class Answer(TypedDict):
    """A prediction, and how sure the model is of it."""

    answer: str
    confidence: float


class Image(TypedDict):
    """An image (`size` is height and width, `rgb` the base64 of its bytes) before and after adaptation."""

    size: list[int]
    rgb: str
    label: str
    before: Answer
    after: Answer


class ClientImages(TypedDict):
    """Some images of a client.

    They were drawn at random if `size` and `changed` are there: how many images the client has, and for how
    many of them adaptation changes the prediction. Earlier versions showed changed ones first.
    """

    id: str
    size: NotRequired[int]
    changed: NotRequired[int]
    images: list[Image]


class RunImages(TypedDict):
    """Some clients of a run."""

    case: str
    seed: int
    clients: list[ClientImages]


class Samples(TypedDict):
    """`samples.json`; `after` is the label of the entry that adapted."""

    format: int
    after: NotRequired[str | None]
    runs: list[RunImages]
