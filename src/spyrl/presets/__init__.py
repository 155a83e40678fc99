"""Recipes, one a published run, plus the ones for small machines."""
