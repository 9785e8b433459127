"""The journal in memory: the sequence of revisions, views of it, outcomes, recovery (protocol, sections 3, 5, 6)."""
