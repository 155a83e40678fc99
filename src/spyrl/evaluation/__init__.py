"""Measuring a trained model: against its base, on benchmarks, in the game, and whether the game was won by reading."""
