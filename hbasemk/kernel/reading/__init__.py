"""Reads at a view: nodes, children, counts, and the cache of nodes (protocol, section 3)."""
