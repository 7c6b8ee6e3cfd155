"""The page about the acceptance laws, from the document alone."""

from __future__ import annotations

from typing import Any

from benchmarks.acceptance.slowdown import sentence

LIMIT = 1e-12
"""An exact law may be off by rounding and no more."""


def bars(told: dict[str, Any]) -> list[dict[str, Any]]:
    """What must hold, what was found, and whether it does."""
    exact = [row for row in told["rows"] if row["exact"]]
    lossy = [row for row in told["rows"] if not row["exact"]]
    over = max(row["over_bound"] for row in lossy)
    tokens = {row["law"]: row["tokens"] for row in exact if row["draft"] == "drawn"}
    gain = tokens["block"] - tokens["exact"]
    rows = [
        ("furthest that an exact law is from the target", f"{told['exact_max_tv']:.1e}", f"at most {LIMIT:.0e}",
         told["exact_max_tv"] <= LIMIT),
        ("furthest that a lossy law is over its own bound", f"{over:.1e}", f"at most {LIMIT:.0e}", over <= LIMIT),
        ("tokens a pass that a block brings beside one by one", f"{gain:+.4f}", "not fewer", gain >= 0),
    ]  # fmt: skip
    return [dict(zip(("what", "value", "bar", "holds"), row, strict=True)) for row in rows]


def table(told: dict[str, Any]) -> list[str]:
    """A row a law and kind of draft."""
    lines = [
        "| law | draft | worlds | TV: max | mean | bound | one guess: max | bound | tokens a pass | exact law's |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in told["rows"]:
        style = ".1e" if row["exact"] else ".3f"
        keys = ("max_tv", "mean_tv", "bound", "one_guess_tv", "one_guess_bound")
        cells = [
            "0" if row["exact"] and "bound" in key else format(row[key], style) for key in keys
        ]
        cells += [f"{row['tokens']:.3f}", "" if row["exact"] else f"{row['tokens_exact']:.3f}"]
        lines.append(
            f"| {row['law']} | {row['draft']} | {row['worlds']} | " + " | ".join(cells) + " |"
        )
    return lines


def page(told: dict[str, Any]) -> str:
    """The whole page as Markdown."""
    head = (
        "# What the acceptance laws do to a text\n\n"
        f"`{told['command']}`. {told['worlds']} random worlds (seed {told['seed']}): vocabularies of 4 to 6, drafts of"
        " 1 to 3 guesses, texts of one token more; rows from random logits through temperature, top-k, top-p and"
        " min-p as the sampler filters them; drafts from the target itself to one that knows nothing of it. Nothing is"
        " sampled: every draft, every number of guesses that may stand and every token after them is summed with its"
        " chance, by the functions that the server draws from, until the text is whole.\n\n"
        "*TV*: total variation between texts under the law and the target's own, the largest and the mean over the"
        " worlds. *bound*: the largest that the law's own bound allows in one of these worlds. *one guess*: the same in"
        " the worlds whose drafts are one guess. *tokens a pass*: guesses that stand and the token after them, mean"
        " over worlds, beside the exact law's in the same worlds. Drafts: *certain*, one for every text; *drawn*, from"
        " rows of chances; *stopping*, drawn, and ended by one of their own tokens. At temperature 0 every law is"
        " equality with the target's first choice, so lossy laws are summed in the other worlds only."
    )
    laws = (
        "- `matched`: the target draws its own token at every place, and a guess stands where it is that token. For"
        " the same seed it is the plain loop's text, too.\n"
        "- `exact`: rejection sampling one by one. `block`: the draft judged as a whole (switch `block_verify`).\n"
        "- `typical`: a guess stands when its chance is above t = min(epsilon, delta e^-H), H the entropy of the"
        " target's row. A place drifts by less than 1 − t.\n"
        "- `cascade`, rule `token`: tokens of at least (1 − alpha) of the target's largest chance may come from the"
        " draft. A place drifts by at most 1 − (1 − alpha) max p. With alpha = 0 it is on, and lossy.\n"
        "- `cascade`, rule `peak`: the draft is believed where its largest chance is at least the target's less alpha"
        " times their total variation. A place drifts by that total variation, and nothing bounds it below 1: a draft"
        " that is sure of nonsense is believed.\n\n"
        "A text of n drafted places drifts by at most 1 − (1 − b)^n, b the largest bound of a place. These worlds are"
        " small and adverse on purpose; they bound nothing about a real model but what the formulas bound."
    )
    held = ["| what | found | bar | |", "|---|---|---|---|"]
    held += [
        f"| {one['what']} | {one['value']} | {one['bar']} | {'holds' if one['holds'] else '**fails**'} |"
        for one in told["bars"]
    ]
    parts = [head, "\n".join(table(told)), laws, "\n".join(held), sentence(told)]
    return "\n\n".join(parts) + "\n"
