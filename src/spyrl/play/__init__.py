"""Playing games with a policy and a task: the stages, what a game is told of, and its replay."""

from spyrl.play.held_out import Example, HeldOut, KnownQuality, Measured, hold_out, measure, mixed
from spyrl.play.indicators import indicators
from spyrl.play.replay import replay
from spyrl.play.stages import (
    Detected,
    Dropped,
    Performance,
    Performed,
    Played,
    Settled,
    deal_games,
    detect,
    detection_seed,
    document_budget,
    perform,
    performing_seed,
    settle,
)
from spyrl.play.summary import summarize
from spyrl.play.table import corpus_for, play_one

__all__ = [
    "Detected",
    "Dropped",
    "Example",
    "HeldOut",
    "KnownQuality",
    "Measured",
    "Performance",
    "Performed",
    "Played",
    "Settled",
    "corpus_for",
    "deal_games",
    "detect",
    "detection_seed",
    "document_budget",
    "hold_out",
    "indicators",
    "measure",
    "mixed",
    "perform",
    "performing_seed",
    "play_one",
    "replay",
    "settle",
    "summarize",
]
