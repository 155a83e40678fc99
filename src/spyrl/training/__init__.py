"""The iteration and its update: trajectories, loss, optimiser, checkpoints."""
