"""The numbers of the bounds: which there are, where they come from, and what follows from them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from ttpfl.errors import TheoryError
from ttpfl.theory import Ball, convergence_bound, largest_step
from ttpfl.theory.answers import answers

CONVERGENCE = "Convergence: all of these, and N and H"
ASKED = ("epsilon", "failure")
IN_THEORY = {
    "clients_n": "clients",
    "batches_k": "batches",
    "modules_d": "modules",
    "direction_h": "direction",
    "lipschitz_l": "lipschitz",
    "radius_r": "radius",
    "rounds_t": "rounds",
}  # what `ttpfl.theory` calls them; the others have one name
ASSUMED = {"batches_k": 1, "lipschitz_l": 1.0, "radius_r": 1.0}


def _number(help: str, default: float | None = None, panel: str | None = None) -> Any:
    return field(default=default, metadata={"help": help, "panel": panel})


@dataclass(frozen=True)
class Numbers:
    """What the bounds depend on, by the paper's letters; None is not known."""

    clients_n: int | None = _number("source clients, N")
    batches_k: int | None = _number("batches per client, K; 1, if not known")
    modules_d: int | None = _number("modules that have a rate, d")
    direction_h: float | None = _number("largest norm of one module's direction, H; --model measures it")
    lipschitz_l: float | None = _number(
        "Lipschitz constant of the predicted probabilities in the weights, L; it cannot be measured cheaply, "
        "so it is your assumption; 1, if not given"
    )
    radius_r: float | None = _number("largest norm of the rates, R; 1, if not given")
    epsilon: float = _number("difference between mean errors at source clients and at new ones", 0.1)
    failure: float = _number("chance that is taken of a difference that large", 0.05)
    beta: float | None = _number("smoothness of the loss in the weights", panel=CONVERGENCE)
    sigma: float | None = _number("standard deviation of gradients at one client", panel=CONVERGENCE)
    zeta: float | None = _number("difference of a client's gradient to the mean of all", panel=CONVERGENCE)
    eta: float | None = _number(
        "step size, at most 1 / (4 H^2 beta); the paper's 'at least' is a misprint", panel=CONVERGENCE
    )
    tau: int | None = _number("local steps in a round", panel=CONVERGENCE)
    rounds_t: int | None = _number("rounds, T", panel=CONVERGENCE)
    distance: float | None = _number("norm of the difference of first and best rates", panel=CONVERGENCE)


def completed(given: Numbers, measured: Mapping[str, Any]) -> tuple[Numbers, dict[str, str]]:
    """Numbers that are not given as they were measured, else as assumed; and what each one is.

    >>> numbers, origins = completed(Numbers(clients_n=240), {"clients_n": 30, "batches_k": 2})
    >>> numbers.clients_n, origins["clients_n"], numbers.batches_k, origins["batches_k"]
    (240, 'given', 2, 'measured')
    >>> numbers.radius_r, origins["radius_r"]
    (1.0, 'assumed')
    """
    origins = {name: "given" for name, value in asdict(given).items() if value is not None}
    numbers, origins = given, origins | dict.fromkeys(ASKED, "asked")
    for origin, values in (("measured", measured), ("assumed", ASSUMED)):
        new: dict[str, Any] = {name: value for name, value in values.items() if name not in origins}
        numbers, origins = replace(numbers, **new), origins | dict.fromkeys(new, origin)
    return numbers, origins


def evaluated(numbers: Numbers) -> dict[str, Any]:
    """What follows from the numbers, as plain data; None where they do not suffice.

    >>> found = evaluated(completed(Numbers(clients_n=240, modules_d=23, direction_h=2.0), {})[0])
    >>> found["one_alpha"]["clients_needed"], found["all_alpha"]["clients_needed"], found["convergence"]
    (877, 104350, None)
    """
    known = _named(numbers, "batches_k", "epsilon", "failure", "clients_n")
    shape = _named(numbers, "modules_d", "direction_h", "lipschitz_l", "radius_r")
    with _errors_by_option():
        ball = None if None in shape.values() else Ball(**shape)
        return {
            "one_alpha": answers(**known),
            "all_alpha": None if ball is None else answers(**known, ball=ball),
            "convergence": _convergence(numbers),
        }


def _named(numbers: Numbers, *names: str) -> dict[str, Any]:
    """Some of the numbers, by the names that `ttpfl.theory` has for them."""
    return {IN_THEORY.get(name, name): getattr(numbers, name) for name in names}


@contextmanager
def _errors_by_option() -> Iterator[None]:
    """Errors of `ttpfl.theory` begin with the name of a number there: who gave it knows it as an option."""
    options = {IN_THEORY.get(entry.name, entry.name): _option(entry.name) for entry in fields(Numbers)}
    try:
        yield
    except TheoryError as error:
        name, _, rest = str(error).partition(" ")
        raise TheoryError(f"{options.get(name, name)} {rest}") from None


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _convergence(numbers: Numbers) -> dict[str, float] | None:
    own = ("beta", "sigma", "zeta", "eta", "tau", "rounds_t", "distance")
    if all(getattr(numbers, name) is None for name in own):
        return None
    names = (*own, "clients_n", "direction_h")
    if missing := [_option(name) for name in names if getattr(numbers, name) is None]:
        raise TheoryError(f"the convergence bound also needs {', '.join(missing)}")
    values = _named(numbers, *names)
    bound = convergence_bound(**values)
    largest = largest_step(values["beta"], values["direction"])
    return {**bound._asdict(), "total": bound.total, "largest_eta": largest}
