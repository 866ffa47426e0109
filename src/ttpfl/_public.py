"""The public names and where they come from; `ttpfl` hands them out."""

from ttpfl import data, federation, models
from ttpfl.direction import DirectionCache
from ttpfl.errors import BatchError, DataError, ModelError, RatesError, RatesFileError, TtpflError
from ttpfl.learning import learn_rates, refine_rates
from ttpfl.personalizer import Personalizer
from ttpfl.rates import Rates, average_rates
from ttpfl.statistics import statistics_rule

__all__ = [
    "BatchError",
    "DataError",
    "DirectionCache",
    "ModelError",
    "Personalizer",
    "Rates",
    "RatesError",
    "RatesFileError",
    "TtpflError",
    "average_rates",
    "data",
    "federation",
    "learn_rates",
    "models",
    "refine_rates",
    "statistics_rule",
]
