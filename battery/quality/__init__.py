"""Coding tasks asked of the arms: what an answer is, whether it runs right, how often. Scored from saved text."""
