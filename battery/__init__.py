"""Evidence for inference-performance claims: measure in interleaved windows, seal, then report.

`battery.bench` runs on a warm machine beside an engine and leaves receipts; `battery.analyse` and `battery.render` read
them anywhere, later. The two wings share only `battery.ledger`.
"""

from __future__ import annotations

__version__ = "0.1.0"
