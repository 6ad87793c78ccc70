"""One colour and dash for every method, the same in every chart of the page, in light and in dark."""

from __future__ import annotations

from dataclasses import dataclass, field

OURS = "Algorithm 1"

# Okabe and Ito's colours, told apart by every kind of colour vision; for the dark page the same hues, lighter.
VERMILION, BLUE, SKY, GREEN, PURPLE, ORANGE, GREY = (
    ("#C84E00", "#FF8A4C"), ("#0067A3", "#5DB2EC"), ("#3E9CD6", "#A6DAFB"), ("#00805C", "#3CCB9F"),
    ("#B4578F", "#EE9CCB"), ("#B07A00", "#F2BC4B"), ("#4A4F57", "#B9C0CA"),
)  # fmt: skip
Dash = list[int]
SOLID: Dash = []
DASHED, DOTTED, LONG = [6, 4], [2, 3], [12, 4]

METHODS: dict[str, tuple[tuple[str, str], list[int]]] = {
    OURS: (VERMILION, SOLID),
    "GD 1/L-bar": (BLUE, SOLID),
    "GD 1/L": (SKY, DASHED),
    "GD matched step": (GREEN, SOLID),
    "GD tuned": (PURPLE, SOLID),
    "GD stratified": (PURPLE, LONG),
    "Nesterov": (GREY, SOLID),
    "GD best fixed step": (PURPLE, DOTTED),
    "GD 2/(L-bar+mu)": (SKY, LONG),
    "own steps, no switch": (ORANGE, SOLID),
    "GD itself": (BLUE, SOLID),
    "L of the device": (VERMILION, SOLID),
    "L-bar": (BLUE, SOLID),
}
HUES = (ORANGE, PURPLE, SKY, GREY, GREEN, BLUE)
DASHES = (SOLID, DASHED, DOTTED, LONG)


@dataclass
class Palette:
    """Hands out looks; a method that is asked for twice has the same one."""

    known: dict[str, tuple[tuple[str, str], list[int]]] = field(default_factory=lambda: dict(METHODS))
    spare: int = 0

    def look(self, name: str) -> tuple[tuple[str, str], list[int]]:
        """Colour in light and in dark, and dash.

        A variant, such as ``FedAdam tuned`` or ``Algorithm 1, 7 local``, keeps its method's colour and changes the
        dash.
        """
        if name not in self.known:
            base = next(
                (b for b in sorted(self.known, key=len, reverse=True) if name.startswith((b + ",", b + " "))), ""
            )
            self.known[name] = self._variant(base) if base else self._new()
        return self.known[name]

    def _variant(self, base: str) -> tuple[tuple[str, str], list[int]]:
        hue, _ = self.known[base]
        taken = [dash for colour, dash in self.known.values() if colour == hue]
        free = [dash for dash in DASHES if dash not in taken]
        return hue, free[0] if free else DASHES[len(taken) % len(DASHES)]

    def _new(self) -> tuple[tuple[str, str], list[int]]:
        taken = list(self.known.values())
        for dash in DASHES:
            for shift in range(len(HUES)):
                look = (HUES[(self.spare + shift) % len(HUES)], dash)
                if look not in taken:
                    self.spare += shift + 1
                    return look
        self.spare += 1
        return HUES[self.spare % len(HUES)], DASHES[self.spare // len(HUES) % len(DASHES)]

    def looks(self, names: list[str]) -> list[tuple[tuple[str, str], list[int]]]:
        """Looks of the lines of one chart, no two alike while there are enough of them."""
        out: list[tuple[tuple[str, str], list[int]]] = []
        for name in names:
            look = self.look(name)
            if look in out:
                free = ((hue, dash) for dash in DASHES for hue in (*HUES, VERMILION) if (hue, dash) not in out)
                look = next(free, look)
            out.append(look)
        return out
