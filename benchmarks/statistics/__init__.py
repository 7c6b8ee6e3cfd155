"""Batteries in which the truth is known: how often verdicts of battery are wrong, and what other rules would say."""
