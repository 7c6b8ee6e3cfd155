"""The page about the statistics, from the document alone: what was simulated, what came, and what had to."""

from __future__ import annotations

from typing import Any

from battery.render import words
from benchmarks.statistics.intervals import error
from benchmarks.statistics.rules import RULES

WORDS = {"fixed": "three windows, same seeds", "ours": "six blocks, new seeds"}
EXPECTED: dict[str, dict[str, tuple[float | None, ...]]] = {
    "fixed": {
        "fastest_2": (73, 74, None, 3, 25, None), "fastest_5": (39, 40, None, 0, 0, None),
        "pooled_welch": (28, 25, None, 0.5, 0.3, None), "apart": (15, 11, None, 0.1, 0, None),
        "per_seed": (36, 37, None, 23, 73, None), "bootstrap": (44, 47, None, 21, 63, None),
        "block_level": (60, 62, None, 5, 21, None), "seed_level": (5, 5.5, None, 24, 66, None),
    },
    "ours": {
        "per_seed": (5, 5, 6, 21, 18, 25), "bootstrap": (4, 4, 3, 12, 9, 12),
        "block_level": (4.8, 4.6, 5.1, 4.9, 3.3, 5.0),
    },
}  # fmt: skip
"""Per cent, as the design was chosen by, in the order of the settings; None where it says nothing."""


def bars(told: dict[str, Any]) -> list[dict[str, Any]]:
    """What must hold, what was found, and whether it does."""
    nulls, covered, control = told["nulls"], told["coverage"], told["positive_control"]
    off = max(row["off"] for row in told["power"]["rows"])
    block = max(one["block_level"] for one in told["contrast"]["shares"]["ours"].values())
    looks = next(row["share"] for row in told["stopping"]["rows"] if row["key"] == "looks")
    precise = max(
        row["share"] for row in told["stopping"]["rows"] if row["key"].startswith("precision")
    )
    void = max(one["ours"] for one in told["self_tests"]["shares"].values())
    share, agreed = covered["coverage"], told["power"]["agreement"]
    inside = f"{control['low']:.4f} to {control['high']:.4f}"
    rows = [
        (f"verdicts on {nulls['batteries']} null batteries", str(nulls["rejections"]), f"at most {nulls['most']}",
         nulls["rejections"] <= nulls["most"]),
        ("coverage of the 95 % interval", percent(share, 1), "93 to 97 %", 0.93 <= share <= 0.97),
        ("power, furthest from the design's table", f"{100 * off:.1f} points", "at most 3 points", off <= 0.03),
        ("p of the tables against battery's own p", f"{agreed:.1g} apart", "at most 1e-9", agreed <= 1e-9),
        ("false positives of the t over blocks", percent(block, 1), "at most 6 %", block <= 0.06),
        ("false positives of four declared looks", percent(looks, 1), "at most 5.5 %", looks <= 0.055),
        ("false positives of stopping at a precision", percent(precise, 1), "at most 5.5 %", precise <= 0.055),
        ("honest batteries that void themselves", percent(void, 2), "at most 0.5 %", void <= 0.005),
        ("an arm measured against itself", *_twin(told["noise_floor"])),
        ("a control slowed to 0.97", f"{control['verdict']}, {inside}", "slower, 0.97 inside", control["found"]),
    ]  # fmt: skip
    return [dict(zip(("what", "value", "bar", "holds"), row, strict=True)) for row in rows]


def _twin(floor: dict[str, Any]) -> tuple[str, str, bool]:
    """Whether the committed campaign of an arm against itself finds nothing at its primary endpoint."""
    bar = "1 inside, no difference called"
    primary = [row for row in floor["rows"] if row["primary"]]
    if not primary:
        return "not measured", bar, False
    (one,) = primary
    inside = (
        f"{words.change(one['low'], True)} to {words.change(one['high'], True)}, {one['verdict']}"
    )
    return inside, bar, bool(one["holds_one"]) and one["verdict"] in ("undecided", "equivalent")


def page(told: dict[str, Any]) -> str:
    """The whole page as Markdown."""
    head = (
        "# What the statistics are worth\n\n"
        f"`{told['command']}`. Batteries in which the truth is known: simulated by the thousand, and one measured. Log"
        " rate of a request = drift of the machine at its window + launch (SD 0.7 %) + what the seed does to both arms"
        " + what it does to each arm alone + noise of the request (SD 0.5 %). *Exact* arms write the same tokens for"
        " the same seed (6 % in common); *rounding* arms write other texts (3 % in common, 5.2 % each alone). Drift:"
        " none, −6 % from first window to last, a random walk of 1 % a window, a warm-up of 5 %, a step of 3 %."
        " Carry-over: 1 % slower after the candidate. Outliers: a tenth of the requests, 10 % slower on average. Order"
        " A B, B A, … opened by a coin. Every figure can be drawn again: the generators' seeds are in"
        " `statistics.json`."
    )
    rows = [
        (bar["what"], bar["value"], bar["bar"], "holds" if bar["holds"] else "**fails**")
        for bar in told["bars"]
    ]
    parts = [
        head, words.table(("what", "found", "bar", "verdict"), rows), _nulls(told), _coverage(told), _power(told),
        _contrast(told), _stopping(told), _self_tests(told), _floor(told), _control(told), _limits(),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _nulls(told: dict[str, Any]) -> str:
    """The null batteries."""
    one = told["nulls"]
    by = one["rejections_by"]
    metrics = ", ".join(f"{name} {count}" for name, count in one["claims_by_metric"].items())
    said = ", ".join(f"{word} {count}" for word, count in one["words"].items())
    drifts = ", ".join(f"{name} {count}" for name, count in by["drift"].items()) or "none"
    arms = ", ".join(f"{name} {count}" for name, count in by["arms"].items()) or "none"
    return (
        f"## 1. {one['batteries']} batteries in which nothing differs\n\n"
        "Real receipts with real traces through the analysis that judges campaigns: two arms, two rungs, eight blocks,"
        " two seeds; every mixture of arms, drift, carry-over and outliers equally often.\n\n"
        f"Verdicts at the primary endpoint: {said}. That is {one['rejections']} others than undecided or equivalent;"
        f" by chance at 5 % up to {one['most']} may be (binomial test, p ≥ .01). By drift: {drifts}. By arms: {arms}."
        "\n\n"
        f"`invalid`: {one['voided']} of these batteries voided themselves, because neighbouring windows of one arm"
        f" differed (level .001); they are no passes and are counted. {one['voided_that_would_reject']} would have been"
        " called different.\n\n"
        f"Anywhere in a battery, over all metrics and rungs after Holm, {one['any_claim']} of {one['batteries']} called"
        f" something different ({metrics}): Holm keeps one metric's rungs together at 5 %, and a battery has several"
        " metrics. Hence one primary endpoint, declared before measuring."
    )


def _coverage(told: dict[str, Any]) -> str:
    """The interval against the truth."""
    one = told["coverage"]
    rows = [
        (key, part["batteries"], percent(part["covered"] / part["batteries"], 1), percent(
            error(part["covered"] / part["batteries"], part["batteries"]), 1))
        for key, part in one["by"].items()
    ]  # fmt: skip
    return (
        f"## 2. Coverage\n\nThe candidate is 4 % faster in truth. Of {one['batteries']:,} intervals"
        f" {one['covered']:,} hold that: **{percent(one['coverage'], 1)}** (standard error"
        f" {100 * one['error']:.1f} points). All mixtures, 6, 8 and 12 blocks of three seeds.\n\n"
        f"{words.table(('part', 'batteries', 'coverage', 'standard error'), rows)}"
    )


def _power(told: dict[str, Any]) -> str:
    """Power beside the design's."""
    one = told["power"]
    rows = [
        (
            f"{row['arms']}, {row['seeds']}", row["blocks"], f"{100 * row['spread']:.2f} %",
            *(f"{share:.2f} ({wanted:g})" for share, wanted in zip(row["power"], row["designed"], strict=True)),
            f"{100 * row['off']:.1f}",
        )
        for row in one["rows"]
    ]  # fmt: skip
    head = (
        "arms, seeds",
        "blocks",
        "SD of a block",
        "+1 %",
        "+2 %",
        "+3 %",
        "+5 %",
        "+7 %",
        "off, points",
    )
    detect = [
        (row["blocks"], f"{row['theory']:.2f} ({row['designed']:.2f})", f"{row['power']:.2f}")
        for row in one["detectable"]
    ]
    within = [
        (row["blocks"], *(f"{a:.2f} ({b:g})" for a, b in zip(row["power"], row["designed"], strict=True)))
        for row in one["equivalence"]
    ]  # fmt: skip
    return (
        f"## 3. Power\n\n![Power](../charts/statistics/power.svg)\n\nShare of {one['batteries']:,} batteries with"
        " random-walk drift and new seeds that call a true difference (on the log scale); in brackets the table that"
        f" the design was chosen by. Standard error at most {100 * one['error']:.2f}"
        f" points.\n\n{words.table(head, rows)}\n\n"
        "Smallest difference found four times out of five, in SDs of a block, by statsmodels (design), and how often"
        f" pure noise around it is called:\n\n{words.table(('blocks', 'difference', 'found'), detect)}\n\n"
        "Share proven equivalent where nothing differs, at a margin of 1, 1.5 and 2 SDs of a block (design):\n\n"
        f"{words.table(('blocks', '1', '1.5', '2'), within)}"
    )  # fmt: skip


def _contrast(told: dict[str, Any]) -> str:
    """Other rules on null batteries."""
    one, parts = told["contrast"], []
    for protocol, shares in one["shares"].items():
        rows = []
        for rule in RULES:
            found = [share.get(rule.key) for share in shares.values()]
            if None in found:
                continue
            wanted = EXPECTED[protocol].get(rule.key, (None,) * len(found))
            cells = [
                percent(a, 1) + (f" ({b:g})" if b is not None else "")
                for a, b in zip(found, wanted, strict=True)
            ]
            rows.append((rule.words, *cells))
        parts.append(f"{WORDS[protocol]}:\n\n{words.table(('rule', *shares), rows)}")
    same = told["nulls"]["rules"]
    rows = [(rule.words, percent(same[rule.key], 1)) for rule in RULES if rule.key in same]
    return (
        "## 4. Other rules where nothing differs\n\n![False positives](../charts/statistics/false-positives.svg)\n\n"
        f"Share of {one['batteries']:,} null batteries that a rule calls different (standard error at most"
        f" {100 * one['error']:.2f} points; in brackets what the design was chosen by). A rule may be believed if no"
        f" column is above 5 % by more than that error allows.\n\n{parts[0]}\n\n{parts[1]}\n\nOn the"
        f" {told['nulls']['batteries']} batteries of section 1, at their primary endpoint:\n\n"
        f"{words.table(('rule', 'called different'), rows)}"
    )


def _stopping(told: dict[str, Any]) -> str:
    """Looking early."""
    one = told["stopping"]
    rows = [
        (row["rule"], percent(row["share"], 1), "" if row["designed"] is None else percent(row["designed"], 1))
        for row in one["rows"]
    ]  # fmt: skip
    return (
        f"## 5. Looking early\n\nShare of {one['batteries']:,} null batteries that are ever called different; ± in SDs"
        " of a block. Stopping at a precision lets through a little more the narrower the interval that is asked for,"
        " since blocks that happen to agree end it.\n\n"
        f"{words.table(('a test', 'called different', 'design'), rows)}"
    )


def _self_tests(told: dict[str, Any]) -> str:
    """How often honest batteries void themselves."""
    one = told["self_tests"]
    rows = [
        (key, percent(share["ours"], 2), percent(share["alternating"], 2))
        for key, share in one["shares"].items()
    ]
    return (
        "## 6. The arms against themselves\n\nEvery battery compares neighbouring windows of one arm and voids itself"
        f" at p < .001. Of {one['batteries']:,} honest batteries (eight blocks, two seeds, random walk) these void"
        " themselves. Two neighbouring pairs share a block and the luck of its prompts; with signs + − − + it does not"
        " add up, with alternating signs it would. The test sees what follows the pattern of the order; drift, steps"
        " and noise, which the order cancels, it does not see.\n\n"
        f"{words.table(('arms', 'signs + − − +', 'alternating'), rows)}"
    )


def _floor(told: dict[str, Any]) -> str:
    """The real campaign of an arm against itself."""
    one = told["noise_floor"]
    head = "## 7. Noise floor: an arm against itself, measured\n\n"
    if not one["rows"]:
        return f"{head}Not measured yet: {one['why']}."
    rows = [
        (
            row["metric"] + (" (primary)" if row["primary"] else ""), f"{row['rung']:,}",
            words.change(row["ratio"], True),
            "–" if row["low"] is None else f"{words.change(row['low'], True)} to {words.change(row['high'], True)}",
            "–" if row["half_width"] is None else f"±{100 * row['half_width']:.2f} %", row["verdict"],
        )
        for row in one["rows"]
    ]  # fmt: skip
    arms = " and ".join(one["arms"])
    return (
        f"{head}Campaign `{one['campaign']}`, arms {arms}, {one['blocks']} blocks, {one['machine']}: the two differ in"
        " nothing. The half-width is what a difference must exceed there to be seen.\n\n"
        f"{words.table(('metric', 'context', 'change', '95 % interval', 'half-width', 'verdict'), rows)}"
    )


def _control(told: dict[str, Any]) -> str:
    """The positive control."""
    one = told["positive_control"]
    rows = [
        (number, f"{c['ratio']:.4f}", f"{c['low']:.4f} to {c['high']:.4f}", c["verdict"], "yes" if c["found"] else "no")
        for number, c in enumerate(one["campaigns"], start=1)
    ]  # fmt: skip
    return (
        "## 8. Positive control, measured\n\nA real campaign over HTTP against the fake engine of the tests, which"
        f" sleeps to absolute times: {one['gap_ms']:g} ms a token for the control, {one['gap_ms']:g}/0.97 ms for the"
        f" candidate, {one['tokens']} tokens, {one['blocks']} blocks of {one['seeds']} seed. Truth: {one['truth']:g}."
        " A 95 % interval misses once in twenty: a campaign that misses is repeated once, and both stand here.\n\n"
        f"{words.table(('campaign', 'ratio', '95 % interval', 'verdict', 'found'), rows)}"
    )


def _limits() -> str:
    """What none of this shows."""
    return (
        "## 9. Limits\n\nThe spreads of the simulation come from one published battery; a machine's own are in its"
        " reports. An interval speaks for these prompts on this machine in this session. The simulated rates are steady"
        " within a request. The order cancels carry-over but for one window, since the first has none before it: over"
        " six blocks that the candidate opens, a sixth of it is left. Prefill and time to first token of a null battery"
        " are one figure seen twice. The positive control shows that a known slowdown between tokens arrives in the"
        " verdict; it says nothing of prefill."
    )


def percent(share: float | None, digits: int) -> str:
    """A share for people; a dash for none."""
    return "–" if share is None else f"{100 * share:.{digits}f} %"
