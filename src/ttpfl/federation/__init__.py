"""Global training and rate learning over clients: fast on one machine, and resumable to the bit."""

from ttpfl.federation.callbacks import Callback
from ttpfl.federation.learn import learn
from ttpfl.federation.settings import LearnSettings, TrainSettings
from ttpfl.federation.train import train

__all__ = ["Callback", "LearnSettings", "TrainSettings", "learn", "train"]
