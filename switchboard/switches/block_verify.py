"""Judge a drawn draft as a whole: at least as many guesses stand as one by one, and the text stays the target's.

The law is `accept.exact.Block`. It is for drafts that are drawn from chances; certain guesses fare with it as with the
exact law, so it declines them: the text would only cease to be the plain loop's. `redrawn`: the same distribution, but
with the same seed another text than the plain loop's. `runs` counts rulings; at temperature 0 there are none.
"""

from __future__ import annotations

from switchboard.accept.exact import Block
from switchboard.accept.ruling import Counted
from switchboard.registry import Counter, NoOptions, switch


@switch(stage="law", exactness="redrawn")
def block_verify(options: NoOptions, counter: Counter) -> Counted:
    """Make the law."""
    return Counted(Block(), counter)
