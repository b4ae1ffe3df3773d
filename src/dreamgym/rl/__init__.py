"""Reinforcement learning: advantages, losses, algorithms, learner."""
