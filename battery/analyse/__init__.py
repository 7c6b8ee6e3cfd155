"""From receipts to findings: rows, paired estimates, verdicts, reasons for doubt. Needs neither engine nor machine."""
