"""The program of a worst case over kinds of devices, and the same in units that suit a solver."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ownstep.pep.conditions.assemble import triangle, unpack
from ownstep.pep.networks.program import Blocks, Interpolation, Mixings
from ownstep.pep.trace.units import Units

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Program:
    """A worst case: blocks, conditions, bounds on the start, and the metric.

    Parameters
    ----------
    heads : packed rows of the bounded squares, each divided by its bound.
    head_names : what they bound.
    target, target_values : the metric over the packed blocks and the values.
    value_units : of every value.
    """

    blocks: Blocks
    interpolation: Interpolation
    mixings: tuple[Mixings, ...]
    heads: Array
    head_names: tuple[str, ...]
    target: Array
    target_values: Array
    value_units: Array


@dataclass(frozen=True, eq=False)
class Multipliers:
    """tau, lambda, Z and a in the program's own units."""

    heads: Array
    conditions: Array
    matrices: tuple[Array, ...]
    free: tuple[Array, ...]

    def carried(self, units: Units, metric: str) -> Multipliers:
        """In the caller's units; vectors that are mixed count in the method's, which differ by the unit of length."""
        whole, square = units.metric(metric), units.length**2
        mixed = [tuple(whole / square * part for part in parts) for parts in (self.matrices, self.free)]
        return Multipliers(whole * self.heads, whole / units.metric("value") * self.conditions, mixed[0], mixed[1])


class Scaled:
    """The program in units of its columns, with columns left out that nothing touches."""

    def __init__(self, program: Program, units: list[Array], value_units: Array) -> None:
        self.program, self.value_units = program, value_units
        inter = program.interpolation
        touched = np.abs(inter.rows.blocks).sum(axis=0) + np.abs(program.heads).sum(axis=0) + np.abs(program.target)
        for mix in program.mixings:
            touched = touched + np.abs(mix.bounded).sum(axis=0)
        self.kept, self.units = [], []
        packed_units, chosen, at = [], [], 0
        for n, unit in zip(program.blocks.sizes, units, strict=True):
            diagonal = unpack(np.asarray(touched)[at : at + triangle(n)], n)
            keep = np.flatnonzero(diagonal.any(axis=1))
            columns, rows = np.tril_indices(n)
            inside = np.isin(columns, keep) & np.isin(rows, keep)
            packed_units.append((unit[columns] * unit[rows])[inside])
            chosen.append(at + np.flatnonzero(inside))
            self.kept.append(keep)
            self.units.append(unit[keep])
            at += triangle(n)
        self.scale, self.chosen = np.concatenate(packed_units), np.concatenate(chosen)
        self.sizes = [len(keep) for keep in self.kept]
        goal = program.target[self.chosen] * self.scale
        goal_values = program.target_values * value_units
        self.size = max(np.abs(goal).max(initial=0), np.abs(goal_values).max(initial=0)) or 1.0
        self.target, self.target_values = goal / self.size, goal_values / self.size
        self.heads = self._dense(program.heads)
        rows_blocks = sp.csr_array(inter.rows.blocks[:, self.chosen] @ sp.diags_array(self.scale))
        rows_values = sp.csr_array(inter.rows.values @ sp.diags_array(value_units))
        most = np.maximum(_largest(rows_blocks), _largest(rows_values))
        self.row_size = np.where(most > 0, most, 1.0)
        shrink = sp.diags_array(1 / self.row_size)
        self.conditions, self.values = sp.csr_array(shrink @ rows_blocks), sp.csr_array(shrink @ rows_values)
        self.bounded, self.symmetric, self.step_sizes = [], [], []
        for mix in program.mixings:
            bounded, equal = self._dense(mix.bounded), self._dense(mix.symmetric)
            t = mix.steps
            ends = [triangle(j + 1) - 1 for j in range(t)]
            sizes = np.sqrt(np.maximum(np.abs(bounded[ends]).max(axis=1), 1e-300))
            columns, rows = np.tril_indices(t)
            self.bounded.append(bounded / (sizes[columns] * sizes[rows])[:, None])
            off = columns != rows
            self.symmetric.append(equal / (sizes[columns] * sizes[rows])[off][:, None])
            self.step_sizes.append(sizes)

    def _dense(self, rows: Array) -> Array:
        return np.asarray(rows[:, self.chosen] * self.scale)

    def multipliers(self, heads: Array, conditions: Array, matrices: list[Array], free: list[Array]) -> Multipliers:
        """From the solver's units to the program's."""
        out, loose = [], []
        for Z, a, sizes in zip(matrices, free, self.step_sizes, strict=True):
            out.append(self.size * Z / np.outer(sizes, sizes))
            columns, rows = np.tril_indices(len(sizes))
            off = columns != rows
            loose.append(self.size * a / (sizes[columns] * sizes[rows])[off])
        return Multipliers(self.size * heads, self.size * conditions / self.row_size, tuple(out), tuple(loose))


def _largest(rows: sp.csr_array) -> Array:
    if not all(rows.shape):
        return np.zeros(rows.shape[0])
    return np.asarray(abs(rows).max(axis=1).toarray()).ravel()
