"""Agents that write tutorials and tests: `muster tutorial fill`, `sync` and `skill`."""
