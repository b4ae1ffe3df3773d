"""Turn a matplotlib figure into SVG that lives inside an HTML page.

Drawn without pyplot: figures are objects, and the few settings that must hold while a figure is
drawn and saved are put back afterwards.  Colours become CSS variables, so that one drawing serves
light, dark and paper; texts stay texts, so that they can be searched, read aloud and scaled.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

INK = "#1a1c21"
MUTED = "#5d6471"
LINE = "#d9dce2"
PAPER = "#fffffe"
DREAM = "#6b4fd9"
REAL = "#0b7f65"
WARN = "#c2571b"
OTHER = "#7c8795"

_VARIABLES = {
    INK: "--ink", MUTED: "--muted", LINE: "--line", PAPER: "--paper",
    DREAM: "--dream", REAL: "--real", WARN: "--warn", OTHER: "--other",
}  # fmt: skip
"""Colour drawn -> CSS variable of the page. No drawing uses any other colour."""

_SETTINGS = {
    "svg.fonttype": "none",
    # A fixed salt makes equal figures equal text: a page can be compared and cached.
    "svg.hashsalt": "dreamgym",
    # Labels come from data; a "$" in one is a dollar sign, not the start of a formula.
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 10.0,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 9.5,
    "axes.titlesize": 10.0,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "ytick.major.size": 0.0,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}

WIDTH = 4.9
"""Inches: at 72 points each about as wide as a phone, so texts keep their size there."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_ID = re.compile(r'\sid="([^"]*)"')
_REFERENCE = re.compile(r'(?<=url\(#)[^)"]+(?=\))|(?<=href="#)[^"]+(?=")')
_COLOUR = re.compile("|".join(_VARIABLES))
_CUT = (
    re.compile(r"<metadata>.*?</metadata>", re.DOTALL),
    # A style element inside inline SVG would apply to the whole page.
    re.compile(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", re.DOTALL),
    re.compile(r"<!--.*?-->", re.DOTALL),
)


def render(draw: Callable[[Any], None], *, alt: str, height: float, name: str) -> Markup:
    """Draw on a new figure (`WIDTH` x `height` inches) and return it as inline SVG.

    `draw` gets the matplotlib figure, which has no types here.  `alt` is read out in place of the
    drawing; `name` keeps its ids apart from those of other drawings on the page.
    """
    with rc_context(_SETTINGS), warnings.catch_warnings():
        # Widths of glyphs the drawing font lacks are guessed; the browser has them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure)
        file = io.StringIO()
        figure.savefig(file, format="svg")
    return _inline(file.getvalue(), alt=alt, name=name)


def label(text: str, limit: int = 30) -> str:
    """Return a text from data as a one-line label of at most `limit` characters."""
    line = " ".join(_plain(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _plain(text: str) -> str:
    """Return a text without what XML cannot hold: control characters and halves of characters."""
    return _CONTROL.sub(" ", text).encode("utf-8", "replace").decode("utf-8")


def share_axis(axis: Any) -> None:
    """Label an axis of shares in percent."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(100 * value, 1):g} %"))


def _inline(drawing: str, *, alt: str, name: str) -> Markup:
    text = drawing[drawing.index("<svg") :]
    for pattern in _CUT:
        text = pattern.sub("", text)
    used = set(_REFERENCE.findall(text))
    text = _ID.sub(lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", text)
    text = _REFERENCE.sub(lambda m: f"{name}-{m[0]}", text)
    text = _COLOUR.sub(lambda m: f"var({_VARIABLES[m[0]]})", text)
    text = text.replace("'DejaVu Sans'", "var(--font)")
    # The size comes from the view box and the page's style sheet.
    opening, rest = text.split(">", 1)
    opening = re.sub(r'\s(width|height)="[^"]*"', "", opening)
    return Markup(f'{opening} role="img" aria-label="{escape(_plain(alt))}">{rest.strip()}')
