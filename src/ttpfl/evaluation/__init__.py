"""What methods are worth: the evaluator, comparisons, and what is made of them."""

from ttpfl.evaluation.comparison import Comparison, compare, gather
from ttpfl.evaluation.evaluator import Evaluator

__all__ = ["Comparison", "Evaluator", "compare", "gather"]
