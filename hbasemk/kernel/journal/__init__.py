"""The in-memory journal: the revision sequence, views of it, outcomes, recovery (protocol, sections 3, 5 and 6)."""
