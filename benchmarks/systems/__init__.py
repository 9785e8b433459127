"""The systems that are not peers: hbasemk itself, and the floors beneath it."""
