"""From an answer's text to a program, without running anything: `extract` finds the code, `compose` builds the program.

An answer is a pure function's argument here: the same text gives the same program anywhere, later, offline.

1. `cleaning`: line ends, terminal escapes, special tokens that a server leaked at the end.
2. `reasoning`: what stands between tags like `<think>` goes, unless the tags are part of code.
3. `fences`, `stretches`, `continuation`: the three ways in which code stands in an answer.
4. `choosing`: which of them counts.
5. `composing`: the program around it.
"""

from battery.quality.extract.choosing import Found, extract
from battery.quality.extract.composing import MODULE_NAME, compose

__all__ = ["MODULE_NAME", "Found", "compose", "extract"]
