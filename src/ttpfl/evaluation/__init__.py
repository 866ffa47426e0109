"""Evaluation of methods on target clients."""

from typing import TYPE_CHECKING

from ttpfl.util.lazy import attributes

if TYPE_CHECKING:
    from ttpfl.evaluation.comparison import compare, gather
    from ttpfl.evaluation.evaluator import Evaluator
    from ttpfl.results.comparison import Comparison

__all__ = ["Comparison", "Evaluator", "compare", "gather"]

__getattr__ = attributes(
    __name__,
    {"Comparison": "comparison", "Evaluator": "evaluator", "compare": "comparison", "gather": "comparison"},
)
