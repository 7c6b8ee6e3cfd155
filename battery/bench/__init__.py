"""The measuring wing: launch an engine, gate, time one request at a time, and leave receipts."""
