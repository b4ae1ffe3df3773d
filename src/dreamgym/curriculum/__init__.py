"""Which tasks to train on: value, sampling, generation."""
