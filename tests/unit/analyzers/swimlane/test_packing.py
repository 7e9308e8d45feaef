import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from analyzers.swimlane.model import Slice
from analyzers.swimlane.packing import nest, nest_each, pack
from analyzers.table.spans import ABSENT, Source
from tests.builders.recordings import timeline_from
from tests.builders.spans import Spans


def slices(*intervals: tuple[int, int]) -> list[Slice]:
    return [Slice(f"{start}-{end}", "", start, end, {}) for start, end in intervals]


def names(lanes: Sequence[Sequence[Slice]]) -> list[list[str]]:
    return [[item.name for item in lane] for lane in lanes]


def test_nested_and_adjacent_slices_share_a_lane() -> None:
    assert names(nest(slices((5, 8), (0, 10), (10, 12), (8, 10)))) == [["0-10", "5-8", "8-10", "10-12"]]


def test_an_overlap_opens_a_lane_and_takes_what_is_inside_it_along() -> None:
    # 6-9 lies in both 0-10 and 5-15; the one that began later is the one around it.
    assert names(nest(slices((0, 10), (5, 15), (6, 9)))) == [["0-10"], ["5-15", "6-9"]]


def test_units_never_share_time_on_a_lane_even_if_one_would_fit_inside_another() -> None:
    lanes = pack([slices((0, 10)), slices((2, 4)), slices((10, 12))])
    assert [names(lane) for lane in lanes] == [[["0-10"], ["10-12"]], [["2-4"]]]


def test_a_unit_that_ends_in_an_instant_does_not_lend_it_to_the_next() -> None:
    assert names(nest_each([slices((0, 5), (5, 5)), slices((5, 9))])) == [["0-5", "5-5", "5-9"]]


intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=25)


@given(intervals)
def test_whatever_comes_no_lane_holds_an_overlap_that_does_not_nest(drawn: list[tuple[int, int]]) -> None:
    given_slices = slices(*((start, start + length) for start, length in drawn))
    lanes = nest(given_slices)
    assert sorted(item.name for lane in lanes for item in lane) == sorted(item.name for item in given_slices)
    for lane in lanes:
        for first, second in itertools.combinations(lane, 2):
            assert first.start_ns <= second.start_ns
            assert second.start_ns >= first.end_ns or second.end_ns <= first.end_ns


@given(intervals)
def test_packing_uses_no_more_lanes_than_units_that_share_a_moment(drawn: list[tuple[int, int]]) -> None:
    units = [slices((start, start + length + 1)) for start, length in drawn]
    lanes = pack(units)
    deepest = max((sum(s <= at < s + n + 1 for s, n in drawn) for at in range(85)), default=0)
    assert len(lanes) == deepest
    for lane in lanes:
        for (first,), (second,) in itertools.pairwise(lane):
            assert first.end_ns <= second.start_ns


runs = st.lists(
    st.tuples(st.integers(0, 200), st.integers(1, 80), st.integers(0, 80), st.sampled_from([ABSENT, 0, 1])),
    max_size=8,
)


@given(runs)
def test_every_span_of_every_run_is_drawn_once_and_nothing_overlaps(
    drawn: list[tuple[int, int, int, int]],
) -> None:
    table = Spans(Source.STRACE)
    for invocation, (start, length, offset, slot) in enumerate(drawn, 1):
        inner = min(offset, length)
        for name, at, lasts, depth in (
            ("chip.run.runner_run", start + inner, length - inner, 1),
            ("chip.run.bind", start, inner, 1),
            ("chip.run", start, length, 0),
        ):
            table.add(name, at, at + lasts, rank=0, slot=slot, invocation=invocation, depth=depth)
    tracks = list(timeline_from(table.build()).tracks())
    assert sum(len(track.slices) for track in tracks) == 3 * len(drawn)
    assert len({track.name for track in tracks}) == len(tracks)
    for track in tracks:
        for first, second in itertools.combinations(track.slices, 2):
            assert second.start_ns >= first.end_ns or second.end_ns <= first.end_ns
            if second.start_ns < first.end_ns:
                # What lies inside belongs to the same run.
                assert first.args["invocation"] == second.args["invocation"]
