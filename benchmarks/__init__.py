"""Benchmarks: the same scenarios on hbasemk, on the peers that users would pick instead, and on the bare store."""
