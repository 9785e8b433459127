"""Collection of old revisions: which cells no readable view needs, and their deletion (``docs/protocol.md``, section 9)."""
