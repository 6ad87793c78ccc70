"""One colour and dash for every method, the same in every chart of the page, in light and in dark.

Whatever is no method (a split of the data, a precision, a measure) has colours of its own, so that no line looks like
a method that it is not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

OURS = "Algorithm 1"

# Okabe and Ito's colours, told apart by every kind of colour vision; for the dark page the same hues, lighter.
VERMILION, BLUE, SKY, GREEN, PINK, AMBER, GREY, INDIGO = (
    ("#D55E00", "#FF8A4C"), ("#0072B2", "#5DB2EC"), ("#56B4E9", "#A6DAFB"), ("#009E73", "#3CCB9F"),
    ("#CC79A7", "#EE9CCB"), ("#E69F00", "#F2BC4B"), ("#444444", "#C3C9D2"), ("#332288", "#A99CF2"),
)  # fmt: skip
FED = (("#666666", "#A9B0BA"), ("#7A7A7A", "#B9BFC8"), ("#8E8E8E", "#9BA2AC"), ("#A0A0A0", "#8A919B"))
BROWN, WINE = ("#8C564B", "#C9A27E"), ("#7C2A4F", "#E79ABB")
TEAL, OLIVE, SLATE = ("#1F6F78", "#6FC7CF"), ("#6B6B1E", "#CFCF74"), ("#5B6B7B", "#A9B8C6")
Dash = list[int]
SOLID: Dash = []
DASHED, DOTTED, LONG = [6, 4], [2, 3], [12, 4]

Look = tuple[tuple[str, str], Dash]
METHODS: dict[str, Look] = {
    OURS: (VERMILION, SOLID),
    "own steps": (VERMILION, SOLID),
    "own steps, no switch": (VERMILION, DOTTED),
    "own steps, ITEM": (VERMILION, LONG),
    "adaptive own steps": (VERMILION, DASHED),
    "own curvature": (INDIGO, SOLID),
    "own curvature, devices alike": (INDIGO, DASHED),
    "GD 1/L-bar": (BLUE, SOLID),
    "GD itself": (BLUE, SOLID),
    "GD 1/L": (BLUE, DASHED),
    "GD 2/(L-bar+mu)": (BLUE, LONG),
    "GD matched step": (GREEN, SOLID),
    "GD tuned": (PINK, SOLID),
    "GD": (PINK, SOLID),
    "GD best fixed step": (PINK, SOLID),
    "GD stratified": (PINK, DASHED),
    "GD stratified, matched step": (PINK, DOTTED),
    "Nesterov": (GREY, SOLID),
    "Nesterov 1/L-bar": (GREY, SOLID),
    "Nesterov, restart": (GREY, SOLID),
    "ITEM": (GREY, DASHED),
    "ITEM 1/L-bar": (GREY, DASHED),
    "L-BFGS": (AMBER, SOLID),
    "Barzilai-Borwein": (PINK, LONG),
    "designed steps": (BROWN, SOLID),
    "decentralised GD": (SKY, DASHED),
    "DGD": (SKY, DASHED),
    "gradient tracking": (SKY, DOTTED),
    "EXTRA": (SKY, LONG),
    "NIDS": (SKY, SOLID),
    "NIDS, own steps": (SKY, SOLID),
    "FedAvg": (FED[0], SOLID),
    "FedAvgM": (FED[0], LONG),
    "FedAdam": (FED[1], DASHED),
    "FedYogi": (FED[2], LONG),
    "FedAdagrad": (FED[3], DOTTED),
    "FedProx": (FED[1], LONG),
    "FedNova": (FED[2], DASHED),
    "FedDyn": (FED[2], SOLID),
    "FedExP": (FED[3], LONG),
    "FedSPS": (FED[3], DASHED),
    "SCAFFOLD": (FED[1], DOTTED),
    "Scaffnew": (FED[0], DOTTED),
    "Delta-SGD": (FED[2], DOTTED),
    "L of the device": (SLATE, SOLID),
    "L-bar": (WINE, DASHED),
}
OTHERS = (TEAL, OLIVE, SLATE)
"""Hues of what is no method."""
DASHES = (SOLID, DASHED, DOTTED, LONG)


@dataclass
class Palette:
    """Hands out looks; a method that is asked for twice has the same one."""

    known: dict[str, Look] = field(default_factory=lambda: dict(METHODS))

    def looks(self, names: list[str]) -> list[Look]:
        """Looks of the lines of one chart, no two alike while there are enough of them.

        A variant, such as ``FedAdam tuned`` or ``Algorithm 1, 7 local``, keeps the colour and changes the dash where
        its method is drawn too. A comparison ``over GD 1/L-bar`` looks like the method it names. Any other name takes
        the first look that is free in this chart, and keeps it where it can.
        """
        out: list[Look] = []
        for name in names:
            look = self.known.get(name.removeprefix("over ")) or self._variant(name.removeprefix("over "))
            if look is not None and look in out:  # the same colour with another dash
                look = next(((look[0], dash) for dash in DASHES if (look[0], dash) not in out), None)
            if look is None:
                free = ((hue, dash) for hues in (OTHERS, (WINE, *FED)) for dash in DASHES for hue in hues)
                look = next((f for f in free if f not in out), (SLATE, DOTTED))
            self.known.setdefault(name, look)
            out.append(look)
        return out

    def _variant(self, name: str) -> Look | None:
        base = next((b for b in sorted(METHODS, key=len, reverse=True) if name.startswith((b + ",", b + " "))), None)
        if base is None:
            return None
        hue, own = METHODS[base]
        return hue, DASHED if name == f"{base} tuned" else own
