"""From findings to charts, tables and pages, and back: `verify` recomputes them from the receipts."""
