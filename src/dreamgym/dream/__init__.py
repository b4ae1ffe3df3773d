"""The experience model and the dream: a suite whose environment is a language model."""
