"""Measuring whole trainings: the paper's ablations, as seeds x variants of one preset."""
