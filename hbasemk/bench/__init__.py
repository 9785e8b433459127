"""Benchmarks: the same scenarios on hbasemk, on what users would pick instead, and on the bare store beneath."""
