"""Play a recorded playbook in a terminal and leave the evidence that a real coding client leaves: events, a
transcript, usage, files, commits, a result.

These modules are copied to hosts and run there alone (python3 >= 3.7), so they import nothing else of muster, and know of it only
`$MUSTER_AGENT_DIR`, `$MUSTER_RESULT`, `$MUSTER_RESULT_KEY` and `$MUSTER_PROMPT`. Exit codes of the player: 2 for a playbook
that it cannot play, 9 for a step that could not be done, 130 for Ctrl-C twice.
"""
