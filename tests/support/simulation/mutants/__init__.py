"""Mutants: the kernel broken on purpose, one line at a time. Each module breaks the rules of one section of the protocol.

A mutant is a function that takes only ``patch``. The lists of mutants that a kind of runs must find are beside its tests.
"""
