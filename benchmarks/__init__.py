"""Speed and memory, measured side by side: ``python -m benchmarks --help``."""
