"""One colour and dash for every method, the same in every chart of the page, in light and in dark."""

from __future__ import annotations

from dataclasses import dataclass, field

OURS = "Algorithm 1"

# Okabe and Ito's colours, told apart by every kind of colour vision; for the dark page the same hues, lighter.
VERMILION, BLUE, SKY, GREEN, PURPLE, ORANGE, GREY, INDIGO = (
    ("#C84E00", "#FF8A4C"), ("#0067A3", "#5DB2EC"), ("#3E9CD6", "#A6DAFB"), ("#00805C", "#3CCB9F"),
    ("#B4578F", "#EE9CCB"), ("#B07A00", "#F2BC4B"), ("#4A4F57", "#B9C0CA"),
    ("#332288", "#A99CF2"),
)  # fmt: skip
Dash = list[int]
SOLID: Dash = []
DASHED, DOTTED, LONG = [6, 4], [2, 3], [12, 4]

Look = tuple[tuple[str, str], Dash]
METHODS: dict[str, Look] = {
    OURS: (VERMILION, SOLID),
    "own curvature": (INDIGO, SOLID),
    "L-BFGS": (ORANGE, SOLID),
    "own steps": (VERMILION, SOLID),
    "own steps, ITEM": (PURPLE, SOLID),
    "DGD": (SKY, DASHED),
    "GD": (PURPLE, SOLID),
    "FedAvg": (GREY, SOLID),
    "FedDyn": (SKY, SOLID),
    "FedExP": (ORANGE, LONG),
    "GD 1/L-bar": (BLUE, SOLID),
    "GD 1/L": (SKY, DASHED),
    "GD matched step": (GREEN, SOLID),
    "GD tuned": (PURPLE, SOLID),
    "GD stratified": (PURPLE, LONG),
    "Nesterov": (GREY, SOLID),
    "GD best fixed step": (PURPLE, DOTTED),
    "GD 2/(L-bar+mu)": (SKY, LONG),
    "own steps, no switch": (ORANGE, SOLID),
    "decentralised GD": (SKY, SOLID),
    "gradient tracking": (GREEN, LONG),
    "EXTRA": (ORANGE, DOTTED),
    "NIDS": (GREY, LONG),
    "FedAdagrad": (SKY, SOLID),
    "FedAdam": (GREEN, LONG),
    "FedYogi": (ORANGE, LONG),
    "FedAvgM": (GREY, LONG),
    "GD itself": (BLUE, SOLID),
    "L of the device": (VERMILION, SOLID),
    "L-bar": (BLUE, SOLID),
}
HUES = (VERMILION, GREEN, ORANGE, PURPLE, SKY, GREY, BLUE)
DASHES = (SOLID, DASHED, DOTTED, LONG)


@dataclass
class Palette:
    """Hands out looks; a method that is asked for twice has the same one."""

    known: dict[str, Look] = field(default_factory=lambda: dict(METHODS))

    def looks(self, names: list[str]) -> list[Look]:
        """Looks of the lines of one chart, no two alike while there are enough of them.

        A variant, such as ``FedAdam tuned`` or ``Algorithm 1, 7 local``, keeps the colour and changes the dash;
        a name nobody knows takes the first look that is free in this chart, and keeps it where it can.
        """
        out: list[Look] = []
        for name in names:
            look = self.known.get(name) or self._variant(name)
            if look is None or look in out:
                free = ((hue, dash) for dash in DASHES for hue in HUES)
                look = next((f for f in free if f not in out), look or (GREY, DOTTED))
            self.known.setdefault(name, look)
            out.append(look)
        return out

    def _variant(self, name: str) -> Look | None:
        base = next((b for b in sorted(METHODS, key=len, reverse=True) if name.startswith((b + ",", b + " "))), None)
        if base is None:
            return None
        hue, own = METHODS[base]
        if name == f"{base} tuned":
            return hue, DASHED
        taken = [own, *(dash for colour, dash in self.known.values() if colour == hue)]
        return hue, next((dash for dash in DASHES if dash not in taken), DOTTED)
