"""A device for tests of the engine's bookkeeping: it keeps the contract of the programs and none of the arithmetic.

Every cache row records who wrote it, for which position, and which token. The token behind a position is a function of
all tokens before it, as they are read back through the block tables: a page lost, mixed up or cut short gives other
tokens, and the check of every row read says why. Only a reused prefix may be another's, and only where all is kept.
Offsets and slots are worked out anew here, from docs/model.md, Cache groups.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dsv4bench.cache.layout import CacheGroup, CacheLayout, GroupLayout

VOCAB = 6
EOS = 1
WINDOW = 5
TILE = 4
TAIL = 2 * WINDOW
"""Last positions of a prompt that the MTP layer is fed, with what the main model left of them."""

# (tokens a page, pages of the ring): small, so that rings turn and pages end often. A ring holds 12 positions or more:
# a step of 4 rows, two drafts behind it and the window before it.
_SHAPES = ((4, 3), (8, None), (4, None), (2, None), (2, 6), (2, 7), (4, 3))


def layout_for(max_model_len: int) -> CacheLayout:
    """A layout of tiny pages."""
    groups = tuple(
        GroupLayout(group, 1, tokens, tokens, 1, ring, -(-max_model_len // tokens))
        for group, (tokens, ring) in zip(CacheGroup, _SHAPES, strict=True)
    )
    return CacheLayout(max_model_len, 1, groups)


def next_token(tokens: Sequence[int]) -> int:
    """The greedy token behind `tokens`."""
    return zlib.crc32(bytes(tokens)) % VOCAB


@dataclass
class State:
    """One state slot: its generation, all tokens that are known (the last, the tail, not fed yet), and the drafts."""

    generation: int = 0
    tokens: list[int] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """One request of a step: state slot, generation, and its block table per group, cut to its count.

    The pages of its first `reused` positions were filled by others.
    """

    state_slot: int
    generation: int
    tables: tuple[np.ndarray, ...]
    reused: int = 0


@dataclass(frozen=True)
class FakeSnapshot:
    """The prompt so far, what the rings hold of its window, and of which positions the main model left something."""

    tokens: tuple[int, ...]
    rings: dict[CacheGroup, list[int]]
    hidden: frozenset[int]


class FakeRank:
    """One rank. `guess(generation, position)` says whether the draft for a position is right."""

    def __init__(
        self, pages: Sequence[int], slots: int, speculative: int, guess: Callable[[int, int], bool]
    ) -> None:
        sizes = [count * tokens for count, (tokens, _) in zip(pages, _SHAPES, strict=True)]
        # Writer's state slot, generation, position, token. The MTP layer's pool comes last, with ORI's pages.
        self._pools = [np.full((size, 4), -1) for size in (*sizes, sizes[CacheGroup.ORI])]
        self._states = [State() for _ in range(slots)]
        self._prompts: dict[tuple[int, int], list[int]] = {}
        self._hidden: dict[tuple[int, int], frozenset[int]] = {}
        self.frozen: list[set[int]] = [set() for _ in CacheGroup]
        """Pages of each group that nobody may write."""
        self._speculative = speculative
        self._guess = guess

    def prefill(self, row: Row, tokens: Sequence[int], start: int, *, terminal: bool) -> int:
        """Feed a chunk; returns the first token if it is terminal."""
        life = (row.state_slot, row.generation)
        known = self._prompts.setdefault(life, [])
        assert len(known) == start, "chunks must follow each other"
        known.extend(tokens)
        end = len(known)
        hidden = self._hidden.get(life, frozenset()) | set(range(start, end))
        self._hidden[life] = frozenset(position for position in hidden if position >= end - TAIL)
        token = 0
        for first in range(start, len(known), TILE):
            positions = range(first, min(first + TILE, len(known)))
            token = self._feed(row, positions, known[first : first + TILE])[-1]
        if terminal:
            state = State(row.generation, [*known, token])
            self._states[row.state_slot] = state
            tail = range(max(0, end - TAIL), end)
            assert self._hidden[life] == set(tail), "nothing to feed the MTP layer with"
            self._draft(row, state, tail)
        return token

    def take(self, row: Row) -> FakeSnapshot:
        """What a request needs to begin where this one is in its prompt."""
        life = (row.state_slot, row.generation)
        known = self._prompts[life]
        window = range(max(0, len(known) - WINDOW + 1), len(known))
        rings = {
            group: self._read(row, group, self._pools[group], window)
            for group, (_, ring) in zip(CacheGroup, _SHAPES, strict=True)
            if ring is not None
        }
        return FakeSnapshot(tuple(known), rings, self._hidden[life])

    def restore(self, row: Row, snapshot: FakeSnapshot) -> None:
        """Begin a prompt behind what another request left."""
        life, known = (row.state_slot, row.generation), snapshot.tokens
        assert life not in self._prompts
        self._prompts[life], self._hidden[life] = list(known), snapshot.hidden
        window = range(max(0, len(known) - WINDOW + 1), len(known))
        for group, tokens in snapshot.rings.items():
            self._write(row, group, self._pools[group], window, tokens)

    def decode(self, row: Row) -> list[int]:
        """One fused step; returns the tokens committed, none if the slot is no longer the row's."""
        state = self._states[row.state_slot]
        if state.generation != row.generation:
            return []
        last_fed = len(state.tokens) - 2
        fed = [state.tokens[-1], *state.drafts]
        main = self._feed(row, range(last_fed + 1, last_fed + 1 + len(fed)), fed)
        accepted = 0
        while accepted < self._speculative and state.drafts[accepted] == main[accepted]:
            accepted += 1
        committed = main[: accepted + 1]
        state.tokens += committed
        self._draft(row, state, range(last_fed, last_fed + 2 + accepted))
        return committed

    def _feed(self, row: Row, positions: range, tokens: Sequence[int]) -> list[int]:
        """Write all rows of a call, then read what each of them sees."""
        for group in CacheGroup:
            self._write(row, group, self._pools[group], positions, tokens)
        answers = []
        for position in positions:
            seen: list[int] = []
            for group, (_, ring) in zip(CacheGroup, _SHAPES, strict=True):
                first = 0 if ring is None else max(0, position - WINDOW + 1)
                read = self._read(row, group, self._pools[group], range(first, position + 1))
                assert seen[first:] in ([], read), "groups differ"
                seen = read if ring is None else seen
            answers.append(next_token(seen))
        return answers

    def _draft(self, row: Row, state: State, positions: range) -> None:
        """The MTP layer: the rows that became certain, then one more a draft behind the first."""
        state.drafts = []
        sequence = list(state.tokens)
        for _ in range(self._speculative):
            self._write(row, CacheGroup.ORI, self._pools[-1], positions, [0] * len(positions))
            last = positions[-1]
            self._read(row, CacheGroup.ORI, self._pools[-1], range(max(0, last - WINDOW + 1), last + 1))
            token = next_token(sequence)
            if not self._guess(row.generation, last + 2):
                token = (token + 1) % VOCAB
            state.drafts.append(token)
            sequence.append(token)
            positions = range(last + 1, last + 2)

    def _write(
        self, row: Row, group: CacheGroup, pool: np.ndarray, positions: range, tokens: Sequence[int]
    ) -> None:
        for position, token in zip(positions, tokens, strict=True):
            table = row.tables[group]
            page = table[position // _SHAPES[group][0] % len(table)]
            assert page not in self.frozen[group], (group.name, "written, although others may read it")
            pool[self._slots(row, group, position)] = (row.state_slot, row.generation, position, token)

    def _read(self, row: Row, group: CacheGroup, pool: np.ndarray, positions: range) -> list[int]:
        wanted = np.array(positions)
        rows = pool[self._slots(row, group, wanted)]
        own = rows if _SHAPES[group][1] is not None else rows[wanted >= row.reused]
        assert (own[:, 0] == row.state_slot).all(), (group.name, "written by another request")
        assert (own[:, 1] == row.generation).all(), (group.name, "written in another life")
        assert (rows[:, 2] == wanted).all(), (group.name, "overwritten by another position")
        return rows[:, 3].tolist()

    def _slots(self, row: Row, group: CacheGroup, position: np.ndarray | int) -> np.ndarray:
        """docs/model.md, Cache groups: table[(p // b) % count] * b + p % b."""
        tokens, _ = _SHAPES[group]
        table = row.tables[group]
        return table[position // tokens % len(table)] * tokens + position % tokens
