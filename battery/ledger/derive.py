"""Arms made out of one arm: each of its switches taken out, or each left alone.

A *knock-out* asks what a switch adds to all the others: C without it, against C. An *isolation* asks what it is worth
by itself: plain plus it, against plain. In both, two arms differ in one switch and in nothing else: the same backend,
model, flags and environment, so that a difference is the switch's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from battery.ledger import strict
from battery.ledger.arm import Arm, Switch
from battery.ledger.errors import ArmError
from battery.ledger.store import Screen

PLAIN, ALONE, WITHOUT = "-plain", "-only-", "-no-"
"""What follows the arm's name in the names of those that are made out of it."""


def knockouts(arm: Arm, chosen: tuple[str, ...] = ()) -> list[Arm]:
    """`arm` as the control, then `arm` without each of its switches (or of the chosen ones), by name."""
    return [arm, *(_off(arm, name) for name in _switches(arm, chosen, "knocked out"))]


def isolations(arm: Arm, chosen: tuple[str, ...] = ()) -> list[Arm]:
    """`arm` with all switches off as the control, then with each of them (or of the chosen ones) alone, by name."""
    names = _switches(arm, chosen, "isolated")
    plain = _with(arm, arm.name + PLAIN, {}, f"{arm.name} with every switch off")
    alone = (
        _with(
            arm,
            f"{arm.name}{ALONE}{name}",
            {name: arm.switches[name]},
            f"{arm.name} with {name} alone",
        )
        for name in names
    )
    return [plain, *alone]


def option(screen: Screen, arms: Sequence[Arm]) -> str:
    """The option of `battery run` that makes these arms again, as `--knockout C:fused_qkv,prompt_lookup`.

    The switches are named one by one: an arm's file may ask for others by then. `arms` begin with the control.
    """
    names = [arm.name for arm in arms]
    if not screen:
        return f"--arms {','.join(names)}"
    base = names[0] if screen == "knockout" else names[0].removesuffix(PLAIN)
    link = WITHOUT if screen == "knockout" else ALONE
    return f"--{screen} {base}:{','.join(name.removeprefix(base + link) for name in names[1:])}"


def _off(arm: Arm, name: str) -> Arm:
    """The arm without one switch."""
    rest = {key: value for key, value in arm.switches.items() if key != name}
    return _with(arm, f"{arm.name}{WITHOUT}{name}", rest, f"{arm.name} without {name}")


def _with(arm: Arm, name: str, on: Mapping[str, Switch], why: str) -> Arm:
    """The arm with these switches on and all its others off, spelled out so that a difference shows both values."""
    switches = {key: on.get(key, False) for key in arm.switches}
    off = tuple(f"switches.{key}." for key, value in switches.items() if value is False)
    # a rule that a switch must have run cannot hold where it is off
    engaged = {path: want for path, want in arm.engaged.items() if not path.startswith(off)}
    return msgspec.structs.replace(arm, name=name, switches=switches, engaged=engaged, why=why)


def _switches(arm: Arm, chosen: tuple[str, ...], what: str) -> list[str]:
    """The switches of an arm that are on, or those chosen of them; ArmError where there are none."""
    asked = list(arm.asked)
    for name in chosen:
        if name not in asked:
            raise ArmError(
                f"arm {arm.name} asks for no switch '{name}'{strict.nearest(name, asked)}"
            )
    if not asked:
        raise ArmError(f"arm {arm.name} asks for no switch, so none can be {what}")
    if arm.command and "{switches}" not in arm.command:
        raise ArmError(
            f"arm {arm.name}: its switches cannot be taken out of a fixed command line; write the word"
            ' "{switches}" into command where they belong (it becomes --switch NAME or --switch NAME:key=value)'
        )
    return list(dict.fromkeys(chosen)) or asked
