"""Integrate many branches into one that was tested as it is delivered."""
