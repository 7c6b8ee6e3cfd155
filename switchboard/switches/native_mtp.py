"""Let the checkpoint's own multi-token head guess what comes next, and read the guesses in one pass of the model.

qwen3_5, qwen3_5_moe and qwen3_next are published with a head of one layer that was trained for this (`mtp.*`); mlx-lm
drops it at load, and most converted checkpoints lack it. It is read from the model's own *.safetensors, or from
`heads=PLACE`, a folder or file that has them. Declines where there are none (SmolLM2, GGUF files, random weights),
where they are of another shape, or where a pass through them gives no numbers. How they are stored says
switchboard/mtp/stored.py, with what `norms=offset` and `norms=whole` are for. A checkpoint with vision parts needs
`text_only` beside it, as ever.

`depth` guesses at most, one by default: that is what the head was trained for; further ones come from its own output
and are less often right. `coupled`, the default, guesses with the target's own randomness, so that the text is the
plain loop's for the same seed, but for rounding; `coupled=false` draws, and hands the chances on to the laws that
compare them (another text of the same distribution, `redrawn`). Nothing adapts: it guesses every time. Over linear
attention, as in all three families, a draft that is not accepted whole costs one more pass, over its accepted tokens.

Costs the head (one layer, and a matrix of twice the model's width), held as the model is: plain where that is plain,
else as it was stored; a cache of one layer; and one layer's time over every prompt, within the time to the first token.
Other switches do not reach the head's layer. With `prompt_cache` the head sees of a prompt only what was read anew.

`runs` counts drafts, `proposals`, `proposed` and `accepted` those that were verified. Turned off by not asking for it,
or by SWITCHBOARD_NATIVE_MTP=0.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import msgspec

from switchboard import lm, parity
from switchboard.errors import Declined
from switchboard.load import hold_like
from switchboard.mtp import stored
from switchboard.mtp.foresight import Foresight
from switchboard.mtp.head import Ends, Head, blank, fill
from switchboard.mtp.trail import tap
from switchboard.registry import Counter, Exactness, Target, switch


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of this switch."""

    depth: int = 1
    coupled: bool = True
    heads: str | None = None
    norms: stored.Norms = "auto"

    def __post_init__(self) -> None:
        """Refuse a depth that could never propose anything."""
        if not 1 <= self.depth <= 64:
            raise ValueError("depth must be 1 to 64")

    @property
    def exactness(self) -> Exactness:
        """Drawn guesses make another text of the same distribution."""
        return "rounding" if self.coupled else "redrawn"


@switch(stage="draft", exactness="rounding", options=Options)
def native_mtp(options: Options, counter: Counter, target: Target) -> Foresight:
    """Make the proposer, and let it hear the target's passes."""
    place = target.place if options.heads is None else Path(options.heads).expanduser()
    weights = stored.read(place, options.norms)
    head, ends = blank(target.model), Ends(target.model)
    fill(head, weights, stored.mode(place) if place is not None else "affine")
    hold_like(target.model, head, ends.inner.norm.weight.dtype)
    wrong = parity.attempted(partial(_unfit, head, ends))
    if wrong is not None:
        raise Declined(f"the head does not run: {wrong}")
    made = Foresight(head, ends, options.depth, not options.coupled, counter)
    tap(ends.inner, made.heard)
    return made


def _unfit(head: Head, ends: Ends) -> str | None:
    """What is wrong with two passes through the head, or None."""
    cache: Any = lm.caches().KVCache()
    hidden = ends.inner.norm(ends.embed(mx.array([1, 2, 3])))
    for width in (3, 1):
        made = head(ends.embed(mx.arange(width) + 4), hidden[:, :width], cache)
        rows = ends.logits(made)
        if not mx.isfinite(rows).all().item():
            return "its logits are not numbers"
    return None
