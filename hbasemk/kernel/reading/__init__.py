"""Reads in a view: nodes, children, child counts, and the node cache (protocol, section 3)."""
