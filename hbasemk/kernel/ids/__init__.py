"""Revision ids: the lease of a machine id, and the clock that makes ids (protocol, section 2)."""
