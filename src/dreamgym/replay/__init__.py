"""The replay buffer: durable transitions, encoders, top-k retrieval."""
