"""Decide what may be kept of a change that an agent made."""
