"""Check a rate that holds in every round, with fractions alone: ``python check_rate.py proof.json``.

It stands on ``check_network.py`` beside it, and on nothing else. The statement writes down one round of a method: the
vectors of its state (some tied to others by linear relations), what the devices do with them, as in a worst case over
networks, and the next state. Everything is measured from a fixed point, where all vectors are 0. The proof is a V,

    V_k = a quadratic form in the states k, ..., k + m and the gradients of the rounds k, ..., k + m - 1, plus multiples
          of the values seen in these rounds, m = ``memory``,

for which the interpolation and spectral conditions, times multipliers, give in every round

    V_k >= measure_k      and      V_{k+1} <= rate^2 V_k,      so that  sqrt(measure_k) <= sqrt(V_0) rate^k.

The rounds are unrolled here, V one round later is made here, and the relations are shown to outlast a round.
"""

import json
import sys
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from ownstep.pep.proof.check_network import (
        ONE,
        Case,
        Stack,
        Vector,
        add,
        digest,
        exact,
        fields,
        need,
        of_what,
        place,
        read,
        rounded_up,
        semidefinite,
        spectral,
        together,
        total,
    )
else:  # run as a file: the other checker lies beside it
    from check_network import (
        ONE,
        Case,
        Stack,
        Vector,
        add,
        digest,
        exact,
        fields,
        need,
        of_what,
        place,
        read,
        rounded_up,
        semidefinite,
        spectral,
        together,
        total,
    )

FORMAT = "ownstep rate certificate 2"
MOST_ROUNDS, MOST_STEPS = 20, 100  # beyond these a check would take too long; refused
ROUND = ("state", "steps", "next", "measure")  # what a method is known by
Round = tuple[list[Stack], list[tuple[Stack, Stack]], list[Any]]  # state, (point, v) of every gradient, mixing steps


class Window:
    """Some rounds in a row from any state that satisfies the relations."""

    def __init__(self, s: Any) -> None:
        self.case, self.s = Case(s), s
        self.memory = s["memory"]
        need(type(self.memory) is int and 0 <= self.memory < MOST_ROUNDS, "the memory")
        need(type(s["each_round"]) is bool and len(s["state"]) == len(s["next"]) > 0, "the state")
        need(len(s["state"]) + len(s["steps"]) <= MOST_STEPS, "the statement is too large to be checked")
        self.zero = [Fraction(0)] * (len(s["state"]) + len(s["steps"]))
        state = self._first()
        self.rounds: list[Round] = []
        for k in range(self.memory + 1):
            seen, mixed, atoms = self._round(k, state)
            self.rounds.append((state, seen, mixed))
            state = [self.case.vector(written, atoms, self.zero)[0] for written in s["next"]]
            self._kept(state)
        self.rounds.append((state, [], []))

    def _first(self) -> list[Stack]:
        """A state: new vectors, but for those that a relation ties to earlier ones."""
        state: list[Stack] = []
        for j, entry in enumerate(self.s["state"]):
            shared, means, apart = fields(entry, "shared", "means", "apart")
            need(type(shared) is bool, "whether a vector is shared")
            need(len(means) == (1 if shared else len(self.case.every)), "the means of a vector of the state")
            need(len(apart) == (0 if shared else len(self.case.twins)), "the differences of a vector of the state")
            rows: list[Vector] = []
            for c, row in enumerate(means):
                rows.append({("s", j, c): ONE} if row is None else self._mean([*state, [(v, {}) for v in rows]], row))
            mine: dict[int, Vector] = {c: {} for c in self.case.every}
            for c, row in zip(self.case.twins, apart, strict=False):
                mine[c] = {("s", j): ONE} if row is None else self._difference(state, row, c)
            state.append([(rows[0 if shared else c], mine[c]) for c in self.case.every])
        return state

    def _mean(self, state: list[Stack], row: Any) -> Vector:
        """Sum of number times the mean of a kind, from [vector, kind, number]."""
        picked = [(exact(t), state[place(j, state)], c) for j, c, t in row]
        return total(*((t, stack[place(c, stack)][0]) for t, stack, c in picked))

    def _difference(self, state: list[Stack], row: Any, c: int) -> Vector:
        """Sum of number times the difference of a member of kind c, from [vector, number]."""
        return total(*((exact(t), state[place(j, state)][c][1]) for j, t in row))

    def _kept(self, state: list[Stack]) -> None:
        """Do the relations hold for this state too?"""
        for j, (entry, stack) in enumerate(zip(self.s["state"], state, strict=True)):
            broken = f"a round breaks what is said of vector {j} of the state"
            need(not entry["shared"] or all(row == (stack[0][0], {}) for row in stack), broken)
            for c, row in enumerate(entry["means"]):
                need(row is None or stack[c][0] == self._mean([*state[:j], stack[:c]], row), broken)
            for c, row in zip(self.case.twins, entry["apart"], strict=False):
                need(row is None or stack[c][1] == self._difference(state[:j], row, c), broken)

    def _round(self, k: int, state: list[Stack]) -> tuple[list[tuple[Stack, Stack]], list[Any], list[Stack]]:
        """What the devices do in round k: gradients, mixing steps, and all vectors there are then."""
        case, atoms = self.case, list(state)
        seen: list[tuple[Stack, Stack]] = []
        mixed: list[Any] = []
        for j, step in enumerate(self.s["steps"]):
            do, of = fields(step, "do", "of")
            x, _ = case.vector(of, atoms, self.zero)
            if do == "gradient":
                v = case.fresh(("v", k, j), free=lambda c: case.mu[c] < case.L[c])
                seen.append((x, v))
                atoms.append(case.combine((ONE, v), (case.mu, x)))
            else:
                need(do == "mix" and case.ends is not None, f"step {j} does neither")
                y = case.fresh(("y", k, j), weights=case.share, held=case.mean(x))
                mixed.append((k if self.s["each_round"] else 0, x, y))
                atoms.append(y)
        return seen, mixed, atoms

    def seen(self, rounds: int) -> list[tuple[Stack, Stack]]:
        """x*, where all is 0, and then every gradient of the first rounds."""
        nothing: Stack = [({}, {}) for _ in self.case.every]
        return [(nothing, nothing), *(one for _, seen, _ in self.rounds[:rounds] for one in seen)]

    def mixed(self, rounds: int) -> list[Any]:
        """The mixing steps of the first rounds."""
        return [step for _, _, mixed in self.rounds[:rounds] for step in mixed]

    def argument(self, at: Any, later: int) -> Stack:
        """An argument of V: [rounds from now, "state" or "gradient", its place]."""
        ahead, what, index = at
        need(type(ahead) is int and 0 <= ahead <= self.memory and what in ("state", "gradient"), f"the argument {at!r}")
        need(what == "state" or ahead < self.memory, f"V may not look at {at!r}")
        state, seen, _ = self.rounds[ahead + later]
        found: Stack = state[place(index, state)] if what == "state" else seen[place(index, seen)][1]
        return found

    def lyapunov(self, V: Any, factor: Fraction, later: int, values: Vector) -> None:
        """Factor times V, ``later`` rounds from now, added to the forms and to the values."""
        mean, apart, numbers = fields(V, "mean", "apart", "values")
        need(len(apart) == len(self.case.twins), "the forms of V")
        for name, (block, part) in zip(["mean", *self.case.twins], [(mean, 0), *((b, 1) for b in apart)], strict=True):
            of, P = fields(block, "of", "P")
            need([len(row) for row in P] == list(range(1, len(of) + 1)), "the shape of P")
            rows = []
            for *at, c in of:
                need(part == 0 or c == name, "a difference of another kind")
                rows.append(self.argument(at, later)[place(c, self.case.every)][part])
            for j, line in enumerate(P):
                for i, text in enumerate(line):
                    add(self.case.forms[name], rows[i], rows[j], factor * exact(text) * (1 if i == j else 2))
        for ahead, index, c, text in numbers:
            need(type(ahead) is int and 0 <= ahead < self.memory, "a value that V may not look at")
            point = (
                1
                + sum(len(seen) for _, seen, _ in self.rounds[: ahead + later])
                + place(index, self.rounds[ahead + later][1])
            )
            values[place(c, self.case.every), point] = values.get((c, point), 0) + factor * exact(text)

    def prove(self, m: Any, rounds: int, values: Vector, what: str) -> None:
        """Add the conditions of the first ``rounds`` rounds times their multipliers: is what is left >= 0?"""
        case, known = self.case, self.seen(rounds)
        fields(m, "conditions", "Z", "a")
        for c, p, q, times in m["conditions"]:
            t, (x_p, v_p), (x_q, v_q) = exact(times), known[place(p, known)], known[place(q, known)]
            span = case.L[place(c, case.L)] - case.mu[c]
            need(t >= 0 and span > 0 and p != q, f"the condition {c}, {p}, {q}, {times}")
            values[c, q], values[c, p] = values.get((c, q), 0) + t, values.get((c, p), 0) - t
            step, turn = case.combine((ONE, x_p), (-ONE, x_q)), case.combine((ONE, v_p), (-ONE, v_q))
            case.product(c, v_q[c], step[c], t)
            case.product(c, turn[c], turn[c], t / (2 * span))
        spectral(case, self.mixed(rounds), m)
        free = [value for (c, point), value in values.items() if point and case.mu[c] < case.L[c]]
        need(not any(free), f"the values do not cancel in {what}")
        need(all(map(semidefinite, case.forms.values())), f"the slack of {what} is not positive semidefinite")
        case.forms = {name: {} for name in case.forms}


def check(certificate: Any) -> Fraction:
    """The rate that the certificate proves; raises ValueError where it proves nothing."""
    form_of, s, text, V, m = fields(certificate, "format", "statement", "rate", "V", "multipliers")
    need(form_of == FORMAT, f"the format must be {FORMAT!r}")
    together(certificate)
    fields(s, "devices", "method", "any_number", "network", "each_round", "memory", "state", "steps", "next", "measure")
    fields(m, "decrease", "positive")
    rate = exact(text)
    need(rate >= 0, "a rate is not negative")
    window = Window(s)
    case = window.case
    values: Vector = {}
    window.lyapunov(V, rate**2, 0, values)
    window.lyapunov(V, -ONE, 1, values)
    window.prove(m["decrease"], window.memory + 1, values, "V_{k+1} <= rate^2 V_k")
    values = {}
    window.lyapunov(V, ONE, 0, values)
    measured, _ = case.vector(s["measure"], window.rounds[0][0], window.zero)
    case.average(measured, measured, -ONE, case.share)
    window.prove(m["positive"], window.memory, values, "V_k >= measure_k")
    need(fields(s["method"], "name", "digest")[1] == digest(s, *ROUND), "the digest is not that of the steps")
    return rate


def describe(certificate: Any) -> str:
    """What a certificate that was checked proves, everything it depends on included."""
    s, rate = certificate["statement"], rounded_up(Fraction(certificate["rate"]))
    one = s["measure"]
    plain = one[0]["own"] if all(entry == one[0] and not entry["means"] for entry in one) else []
    what = f"vector {plain[0][0]} of the state" if [t for _, t in plain] == ["1"] else f"the vector {json.dumps(one)}"
    method = of_what(s, s["each_round"])
    tied = any(row is not None for entry in s["state"] for row in (*entry["means"], *entry["apart"]))
    start = ", from every start that satisfies the relations of its state" if tied else ""
    return (
        f"the distance to a fixed point shrinks by {rate!r} per round (that of {what}, root mean square over the "
        f"devices, is at most a constant times {rate!r}^k after k), for every number k of rounds of {method}{start}"
    )


if __name__ == "__main__":
    data = read(sys.argv[1])
    print("proved: rate per round <=", check(data))
    print(describe(data))
