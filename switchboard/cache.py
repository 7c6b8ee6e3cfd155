"""The KV cache of one request, and the way to take tokens back from it."""

from __future__ import annotations

from typing import Any

from switchboard import lm


def make(model: Any) -> list[Any]:
    """A fresh cache, one entry a layer, as the model itself wants it."""
    return list(lm.caches().make_prompt_cache(model))


def cannot_rewind(model: Any) -> str | None:
    """Why the model's cache cannot give tokens back, or None when it can.

    A rotating cache can until it is full; speculation over it would fail in the middle of a text, so it counts as
    one that cannot.
    """
    for entry in make(model):
        if not entry.is_trimmable() or hasattr(entry, "max_size"):
            return f"the model's {type(entry).__name__} cannot give rejected tokens back"
    return None


def rewind(cache: list[Any], count: int) -> None:
    """Take the last `count` tokens back."""
    if count == 0:
        return
    for entry in cache:
        taken = entry.trim(count)
        if taken != count:
            raise RuntimeError(f"{type(entry).__name__} gave back {taken} of {count} tokens")


def arrays(cache: list[Any]) -> list[Any]:
    """Everything that has to be evaluated for the cache to be filled."""
    return [entry.state for entry in cache]
