"""Playing episodes and groups in any suite."""
