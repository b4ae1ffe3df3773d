"""The agent's side: prompt, parsing, policies."""
