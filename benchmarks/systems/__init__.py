"""The systems that are not peers: hbasemk itself, and the baselines beneath it."""
