"""Measurements that a user can repeat: ratios taken in one run, never times alone."""
