"""Reads in a view (protocol, section 3).

``reader`` reads nodes and children, ``cache`` keeps the states of nodes near the head, and ``child_count`` counts children
without reading them all.
"""
