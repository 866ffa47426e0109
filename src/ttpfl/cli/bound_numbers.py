"""The numbers in the bounds: their origins, and the bounds they give."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from ttpfl.cli.words import option_name
from ttpfl.errors import TheoryError
from ttpfl.theory import Ball, convergence_bound, largest_step
from ttpfl.theory.answers import answers

ASSUMED = {"batches_k": 1, "lipschitz_l": 1.0, "radius_r": 1.0}
CONVERGENCE = ("beta", "sigma", "zeta", "eta", "tau", "rounds_t", "distance")


def _number(help: str, default: float | None = None, theory: str | None = None) -> Any:
    """A number with its help; `theory` is its name in `ttpfl.theory`, if different."""
    return field(default=default, metadata={"help": help, "theory": theory})


@dataclass(frozen=True)
class Numbers:
    """The numbers in the bounds, with the letters of the paper; None is unknown."""

    clients_n: int | None = _number("number of source clients, N", theory="clients")
    batches_k: int | None = _number("batches per client, K; 1 if unknown", theory="batches")
    modules_d: int | None = _number("number of modules with a rate, d", theory="modules")
    direction_h: float | None = _number(
        "largest norm of a module's direction, H; --model measures it", theory="direction"
    )
    lipschitz_l: float | None = _number(
        "Lipschitz constant of the probabilities in the weights, L; an assumption, 1 if omitted",
        theory="lipschitz",
    )
    radius_r: float | None = _number("largest norm of the rates, R; 1 if omitted", theory="radius")
    epsilon: float = _number("difference between the mean errors at source and at new clients", 0.1)
    failure: float = _number("accepted probability of a difference that large", 0.05)
    beta: float | None = _number("smoothness of the loss in the weights")
    sigma: float | None = _number("standard deviation of the gradients at one client")
    zeta: float | None = _number("difference of a client's gradient from the mean of all")
    eta: float | None = _number(
        "learning rate, at most 1 / (4 H^2 beta); 'at least' in the paper is a misprint"
    )
    tau: int | None = _number("local steps per round")
    rounds_t: int | None = _number("number of rounds, T", theory="rounds")
    distance: float | None = _number("norm of the difference between the first and the best rates")


THEORY = {entry.name: entry.metadata["theory"] or entry.name for entry in fields(Numbers)}


def completed(explicit: Numbers, measured: Mapping[str, Any]) -> tuple[Numbers, dict[str, str]]:
    """Fill in missing numbers with measured, then assumed ones; also return the origin of each.

    >>> numbers, origins = completed(Numbers(clients_n=240), {"clients_n": 30, "batches_k": 2})
    >>> numbers.clients_n, origins["clients_n"], numbers.batches_k, origins["batches_k"]
    (240, 'given', 2, 'measured')
    >>> numbers.radius_r, origins["radius_r"]
    (1.0, 'assumed')
    """
    origins = {name: "given" for name, value in asdict(explicit).items() if value is not None}
    numbers, origins = explicit, {**origins, "epsilon": "asked", "failure": "asked"}
    for origin, values in (("measured", measured), ("assumed", ASSUMED)):
        new: dict[str, Any] = {name: value for name, value in values.items() if name not in origins}
        numbers, origins = replace(numbers, **new), origins | dict.fromkeys(new, origin)
    return numbers, origins


def evaluated(numbers: Numbers) -> dict[str, Any]:
    """The bounds as plain data; None for a bound that lacks numbers.

    >>> bounds = evaluated(completed(Numbers(clients_n=240, modules_d=23, direction_h=2.0), {})[0])
    >>> bounds["one_alpha"]["clients_needed"], bounds["all_alpha"]["clients_needed"], bounds["convergence"]
    (877, 104350, None)
    """
    shared = _in_theory(numbers, "batches_k", "epsilon", "failure", "clients_n")
    shape = _in_theory(numbers, "modules_d", "direction_h", "lipschitz_l", "radius_r")
    with _errors_name_options():
        ball = None if None in shape.values() else Ball(**shape)
        return {
            "one_alpha": answers(**shared),
            "all_alpha": None if ball is None else answers(**shared, ball=ball),
            "convergence": _convergence(numbers),
        }


def _in_theory(numbers: Numbers, *names: str) -> dict[str, Any]:
    return {THEORY[name]: getattr(numbers, name) for name in names}


@contextmanager
def _errors_name_options() -> Iterator[None]:
    """Replace the argument that starts an error of `ttpfl.theory` with its option."""
    options = {argument: option_name(name) for name, argument in THEORY.items()}
    try:
        yield
    except TheoryError as error:
        name, _, rest = str(error).partition(" ")
        raise TheoryError(f"{options.get(name, name)} {rest}") from None


def _convergence(numbers: Numbers) -> dict[str, float] | None:
    if all(getattr(numbers, name) is None for name in CONVERGENCE):
        return None
    names = (*CONVERGENCE, "clients_n", "direction_h")
    if missing := [option_name(name) for name in names if getattr(numbers, name) is None]:
        raise TheoryError(f"the convergence bound also needs {', '.join(missing)}")
    bound = convergence_bound(**_in_theory(numbers, *names))
    largest = largest_step(**_in_theory(numbers, "beta", "direction_h"))
    return {**bound._asdict(), "total": bound.total, "largest_eta": largest}
