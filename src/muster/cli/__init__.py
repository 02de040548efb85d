"""The command line: one small module per verb, loaded only when it is called."""
