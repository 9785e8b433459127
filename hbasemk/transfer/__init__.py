"""Bringing directory trees into a repository and out again."""
