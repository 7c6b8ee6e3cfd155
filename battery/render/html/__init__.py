"""The report as one HTML page that needs nothing else: the Markdown's text, its charts, the receipts behind both."""
