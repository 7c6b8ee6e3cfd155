"""Sessions of models with multi-token heads, out of checkpoints that were written for it."""

from __future__ import annotations

from switchboard.board import Board
from switchboard.config import Config, parse_asked
from switchboard.models import resolve
from switchboard.mtp.foresight import Foresight
from switchboard.sampler import Sampling
from switchboard.session import Session, open_session

PROMPT = [5, 6, 7, 8, 300, 12, 5, 6]
LONG = [(7 * place + place // 3) % 512 for place in range(150)]
"""More hidden states than may wait to be read."""
GREEDY = Sampling(temperature=0.0, ignore_eos=True)
DRAWN = Sampling(temperature=0.9, top_k=40, seed=6, ignore_eos=True)
ASKED = [(prompt, sampling) for prompt in (PROMPT, LONG) for sampling in (GREEDY, DRAWN)]


def opened(name: str, *switches: str, format: str = "auto") -> Session:
    """A session with these switches, each of them required."""
    asked = parse_asked([], list(switches))
    return open_session(Config(name, format=format, asked=asked), resolve(name), Board(asked, {}))


def proposer(one: Session) -> Foresight:
    """The proposer of a session, which has to be that of the heads."""
    made = one.proposer
    assert isinstance(made, Foresight)
    return made
