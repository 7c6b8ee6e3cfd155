"""Whether an answer is the recorded one that was asked for. Pure.

Many servers drop a field that they do not know. A replay on such a server would be a free run under another name, so
neither the server's silence nor its word is enough: it must say that it was forced, and the ids must be those.
"""

from __future__ import annotations

from collections.abc import Sequence

from battery.bench.client import Completion

FIELD = "forced_tokens"
"""Of the request: the ids. Of the server's echo of the sampler, and of receipts: how many."""


def strayed(asked: Sequence[int], done: Completion) -> str | None:
    """Why an answer did not follow the recorded ids that were asked for; None where it did."""
    told = (done.trace.sampler or {}).get(FIELD)
    if told is None:
        return (
            f"asked to follow {len(asked)} recorded tokens ({FIELD}), but the server's echo of the sampler does not say"
            " that it did: the switch was silently off"
        )
    if told != len(asked):
        return f"asked to follow {len(asked)} recorded tokens, but the server says that it followed {told!r}"
    came = done.token_ids
    if came is None:
        return "the server says that it followed the recorded tokens, but sends no token ids to show it"
    pairs = zip(came, asked, strict=False)
    first = next((place for place, (one, other) in enumerate(pairs) if one != other), None)
    if first is not None:
        return (
            f"the server says that it followed the recorded tokens, but token {first + 1} of its answer is"
            f" {came[first]}, the recorded one {asked[first]}"
        )
    if len(came) != len(asked):
        return (
            f"the server says that it followed the recorded tokens, but {len(came)} came of {len(asked)}"
            f" ({done.trace.finish_reason})"
        )
    return None
