"""EvalPlus's extraction beside ours: the same answers, the same tests, the same grader, other code.

`far` runs where EvalPlus is, `process` speaks to it, `sanitiser` keeps one on every core, `beside` has what they find
graded and writes it down.
"""

from battery.quality.evalplus.beside import compare
from battery.quality.evalplus.process import Clean
from battery.quality.evalplus.sanitiser import Sanitiser

__all__ = ["Clean", "Sanitiser", "compare"]
