"""The page of a test run, made from its artifact folder (docs/artifacts.md) and from nothing else."""
