"""HTML elements from text: whatever is put in is escaped, unless it is Markup already."""

from __future__ import annotations

import html
import re

_VOID = {"br", "meta", "hr"}
_SLUG = re.compile(r"[^a-z0-9]+")


class Markup(str):
    """Text that is HTML already and is not escaped again."""

    __slots__ = ()


def escaped(text: object) -> Markup:
    """`text` as HTML shows it."""
    return text if isinstance(text, Markup) else Markup(html.escape(str(text)))


def joined(*parts: object) -> Markup:
    """Parts one after another, each escaped where it is no Markup."""
    return Markup("".join(escaped(part) for part in parts))


def tag(name: str, /, *parts: object, **attributes: str | int | bool | None) -> Markup:
    """One element. `class_` and `for_` lose their underscore, others turn it into `-`; None and False are left out."""
    told = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        shown = key.rstrip("_").replace("_", "-")
        told.append(
            f" {shown}" if value is True else f' {shown}="{html.escape(str(value), quote=True)}"'
        )
    if name in _VOID:
        return Markup(f"<{name}{''.join(told)}>")
    return Markup(f"<{name}{''.join(told)}>{joined(*parts)}</{name}>")


def slug(text: str) -> str:
    """Text as an id: small letters, digits and hyphens, never empty."""
    return _SLUG.sub("-", text.lower()).strip("-") or "part"
