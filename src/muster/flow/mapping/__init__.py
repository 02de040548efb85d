"""One agent for each task: the scheduler, the fleet behind it, and how a run starts."""
