"""Let a smaller model guess several tokens, and read them in one pass of the target.

The drafter is the target's own first layers under its output matrix (`layers=2`, the default: no weight is copied, a
cache of so many layers is), or another model of the same tokenizer (`model=NAME`, named as for --model; `model` and
`layers` exclude each other). Token for token, ends and a sample text are compared at load, and it declines where they
differ.

`coupled`, the default, guesses with the target's own randomness, so that the text is the plain loop's for the same
seed, but for rounding. `coupled=false` draws, and hands the chances on: the exact law accepts more of them, as do
`block_verify` and `cascade:rule=peak`, which need them; the distribution is the same, the text another (`redrawn`).

`runs` counts drafts, `proposals`, `proposed` and `accepted` those that were verified. The cut was never trained to be
one: how much of it stands is a property of the model, and may be little (`python -m benchmarks.cut_acceptance` tells
without a clock). Nothing adapts: `depth` guesses every time. The drafter reads every prompt before the first token,
whole: that is in the time to it, and a client that leaves meanwhile is noticed after.
"""

from __future__ import annotations

import msgspec

from switchboard import drafter
from switchboard.errors import Declined
from switchboard.registry import Counter, Exactness, Target, switch

LAYERS = 2


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of this switch."""

    layers: int | None = None
    model: str | None = None
    depth: int = 3
    coupled: bool = True

    def __post_init__(self) -> None:
        """Refuse options that contradict each other or could never propose anything."""
        if self.layers is not None and self.model is not None:
            raise ValueError("give layers (a cut of the target) or model (another one), not both")
        if not 1 <= self.depth <= 64:
            raise ValueError("depth must be 1 to 64")

    @property
    def exactness(self) -> Exactness:
        """Drawn guesses make another text of the same distribution."""
        return "rounding" if self.coupled else "redrawn"


@switch(stage="draft", exactness="rounding", options=Options)
def draft_model(options: Options, counter: Counter, target: Target) -> drafter.Drafter:
    """Make the proposer."""
    if options.model is None:
        layers = LAYERS if options.layers is None else options.layers
        model = drafter.cut(target.model, layers)
    else:
        model, layers = _other(options.model, target)
    wrong = drafter.unfit(target.model, model, layers)
    if wrong is not None:
        raise Declined(wrong)
    return drafter.Drafter(model, layers, options.depth, not options.coupled, counter)


def _other(name: str, target: Target) -> tuple[object, int]:
    """Another model, loaded plain, if its tokens are the target's."""
    from switchboard.board import Board
    from switchboard.load import load
    from switchboard.models import resolve

    loaded = load(resolve(name), "auto", Board((), {}))
    wrong = drafter.differs(target.text, loaded.text)
    if wrong is not None:
        raise Declined(f"model {name} has another tokenizer: {wrong}")
    return loaded.model, len(loaded.model.layers)
