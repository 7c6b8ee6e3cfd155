"""What a receipt keeps of an answer: digests, its two ends for a reader, and the token ids."""

from __future__ import annotations

from collections.abc import Sequence

from battery.bench.client import Completion
from battery.ledger import scrub, strict
from battery.ledger.receipt import MOST_IDS, Text

HEAD, TAIL = 240, 120
"""Characters of either end."""


def text_of(done: Completion, secrets: Sequence[str] = ()) -> Text | None:
    """Digest, ends and token ids of what was generated; None when nothing came.

    Ids are kept up to MOST_IDS of an answer: beyond, the digest over them is all that is known. So it is for an answer
    in which a secret or a folder of this machine stands: its ids would give back what the scrubber takes out.
    """
    whole = done.reasoning + done.text
    if not whole:
        return None
    ids = done.token_ids
    kept = ids is not None and len(ids) <= MOST_IDS and scrub.record(whole, secrets) == whole
    return Text(
        digest=strict.digest(whole),
        characters=len(whole),
        ids_digest=strict.digest(list(ids)) if ids is not None else None,
        ids=ids if kept else None,
        head=whole[:HEAD],
        tail=whole[-TAIL:] if len(whole) > HEAD else "",
    )
