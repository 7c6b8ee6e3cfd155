"""Results that others measured: read into rows, compared by the same tests, with the weaker guarantees named."""
