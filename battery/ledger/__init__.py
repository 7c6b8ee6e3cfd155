"""The words that measuring and reporting share: arms, plans, cells, traces, receipts, and where they are kept."""
