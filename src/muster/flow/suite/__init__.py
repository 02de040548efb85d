"""Run the tests of a commit: collect them, execute them, and measure the baseline."""
