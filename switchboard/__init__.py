"""The MLX engine under test: mlx-lm models in which every optimisation is a switch.

It is single-stream by design, serves an OpenAI-compatible API on loopback, and its /health tells what really ran.
"""

from __future__ import annotations

__version__ = "0.1.0"
