"""Reads in a view (protocol, section 3).

``reader`` reads nodes and children, ``cache`` keeps states and lists of children, and ``child_count`` counts children
without reading them all.
"""
