"""Draws panels of lines as one SVG file, with axes, ticks and a legend. Numbers come in, text goes
out: the same numbers give the same file."""

import math
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 430, 270  # Of one panel, in pixels.
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 28, 42  # Margins of a panel.
LEGEND_HEIGHT = 30
# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#000000", "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7")
STYLE = ("text{font-family:sans-serif;font-size:12px;fill:#222}"
         ".t{font-size:13px;font-weight:bold}.g{stroke:#ddd}.a{stroke:#444;fill:none}")


@dataclass(frozen=True)
class Line:
    """Points from left to right. `low` and `high` have the range of y at each point."""

    name: str
    x: list
    y: list
    low: list
    high: list


@dataclass(frozen=True)
class Panel:
    title: str
    x_label: str
    y_label: str
    lines: list


def draw(panels, columns=2):
    """Returns the SVG of `panels`, row by row. All have the same lines, so one legend is enough."""
    rows = math.ceil(len(panels) / columns)
    width, height = columns * WIDTH, rows * HEIGHT + LEGEND_HEIGHT
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             f'viewBox="0 0 {width} {height}"><style>{STYLE}</style>'
             f'<rect width="{width}" height="{height}" fill="#fff"/>']
    parts += legend([line.name for line in panels[0].lines], width)
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        parts.append(f'<g transform="translate({column * WIDTH},{row * HEIGHT + LEGEND_HEIGHT})">')
        parts += panel_parts(panel)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def legend(names, width):
    place = (width - LEFT) / len(names)
    for number, name in enumerate(names):
        x = LEFT + number * place
        yield (f'<path d="M{x:.0f} 18h24" stroke="{COLOURS[number % len(COLOURS)]}" '
               f'stroke-width="2"/><text x="{x + 30:.0f}" y="22">{escape(name)}</text>')


def panel_parts(panel):
    x_ticks = ticks(0, max(max(line.x) for line in panel.lines))
    y_ticks = ticks(min(min(line.low) for line in panel.lines),
                    max(max(line.high) for line in panel.lines))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def across(x):
        return LEFT + (x - x_ticks[0]) / (x_ticks[-1] - x_ticks[0]) * (right - LEFT)

    def down(y):
        return bottom - (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]) * (bottom - TOP)

    yield f'<text class="t" x="{LEFT}" y="18">{escape(panel.title)}</text>'
    for y in y_ticks:
        yield (f'<path class="g" d="M{LEFT} {down(y):.1f}H{right}"/>'
               f'<text x="{LEFT - 6}" y="{down(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x in x_ticks:
        yield (f'<path class="a" d="M{across(x):.1f} {bottom}v4"/>'
               f'<text x="{across(x):.1f}" y="{bottom + 17}" text-anchor="middle">{x:g}</text>')
    yield f'<path class="a" d="M{LEFT} {TOP}V{bottom}H{right}"/>'
    yield (f'<text x="{(LEFT + right) / 2:.0f}" y="{bottom + 34}" text-anchor="middle">'
           f'{escape(panel.x_label)}</text>')
    middle = (TOP + bottom) / 2
    yield (f'<text transform="translate(14,{middle:.0f}) rotate(-90)" text-anchor="middle">'
           f'{escape(panel.y_label)}</text>')
    for number, line in enumerate(panel.lines):
        colour = COLOURS[number % len(COLOURS)]
        around = path([*zip(line.x, line.high, strict=True),
                       *reversed([*zip(line.x, line.low, strict=True)])], across, down)
        yield f'<path d="{around}Z" fill="{colour}" fill-opacity="0.12"/>'
        yield (f'<path d="{path(zip(line.x, line.y, strict=True), across, down)}" '
               f'stroke="{colour}" stroke-width="2" fill="none"/>')


def path(points, across, down):
    return "M" + "L".join(f"{across(x):.1f} {down(y):.1f}" for x, y in points)


def ticks(low, high, most=6):
    """Returns round numbers, evenly spaced, that enclose `low` and `high`."""
    span = high - low if high > low else max(abs(high), 1)
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if span / (power * factor) <= most)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(number * step, 10) for number in range(first, max(last, first + 1) + 1)]
