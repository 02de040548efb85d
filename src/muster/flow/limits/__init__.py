"""How many agents run at once, what they may spend, and when launching pauses."""
