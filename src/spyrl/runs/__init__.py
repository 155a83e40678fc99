"""A run is one folder: configuration, metrics, games, checkpoints, the model."""
