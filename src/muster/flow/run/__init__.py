"""The directory of a run: its tasks, attempts, results, artifacts and prompts."""
