"""The stages of `muster improve`, and what is remembered from run to run."""
