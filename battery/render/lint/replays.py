"""Rules about replays: whoever reads a ratio along given texts must see that the texts were given."""

from __future__ import annotations

import re
from collections.abc import Iterator

from battery.render.lint.rule import Found, Report, rule


@rule(
    "replay-stated",
    "the top of a replay's page says that it was one, of which campaign, and that it is about speed only",
)
def replay_stated(report: Report) -> Iterator[Found]:
    """What the top of the page lacks, where the findings are a replay's; and a free page that claims to be one."""
    if report.findings is None:
        return
    # a name may stand in code, so the words are read as they were written
    told = " ".join(" ".join(one.written.split()) for one in report.page.top)
    source = report.findings.plan.replayed
    says = re.search(r"\breplay(?:ed|s)?\b", told, re.I) is not None
    if source is None:
        if re.search(r"\*\*Replayed:\*\*", told):
            what = "the top says that this campaign was a replay, and it was none"
            yield 1, what, "take that note away"
        return
    if not says:
        what = f"the campaign is a replay of {source.campaign}, and the top of the page does not say so"
        yield 1, what, "say at the top that the texts were given"
        return
    if not re.search(rf"(?<![\w.-]){re.escape(source.campaign)}(?![\w-])", told):
        what = f"the top does not name {source.campaign}, whose texts were replayed"
        yield 1, what, "name that campaign beside the word “replayed”"
    if not re.search(r"\bnot\s+(?:on|of|about)\s+(?:\w+\s+){0,2}texts?\b", told, re.I):
        what = "the top does not say what a replay is no statement on"
        yield (
            1,
            what,
            "say that it is a statement on speed along given texts, not on texts that arms would write",
        )
