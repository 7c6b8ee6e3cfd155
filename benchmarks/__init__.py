"""Measurements of our own speed and exactness; nothing here runs in the tests."""
