"""A checkpoint's own multi-token heads: how they are stored, what they compute, and how they guess."""
