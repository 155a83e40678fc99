"""Write a run's result as a Hugging Face folder with a model card."""

from __future__ import annotations

import argparse


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    raise NotImplementedError
