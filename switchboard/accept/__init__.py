"""Acceptance laws: how much of a draft stands, and which token follows. Pure: chances in, chances out."""
