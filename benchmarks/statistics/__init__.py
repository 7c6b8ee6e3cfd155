"""Batteries in which the truth is known: how often the verdicts of battery are wrong, and what other rules would say."""
