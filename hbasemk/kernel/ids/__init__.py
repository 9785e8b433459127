"""Revision ids: the lease of a machine id, and the clock that issues ids (protocol, section 2)."""
