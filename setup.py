"""Everything is declared in setup.cfg; this file is there for tools that still ask for it."""

from setuptools import setup

setup()
