"""Branches: heads, commits, rebase and merge (protocol, section 7)."""
