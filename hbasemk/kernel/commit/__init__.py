"""Commits: operations, staging, the change set, the read-back and the decision (protocol, section 4)."""
