import itertools

from hypothesis import given
from hypothesis import strategies as st

from analyzers.swimlane.lanes import nest, pack
from analyzers.swimlane.model import Slice


def slices(*intervals: tuple[int, int]) -> list[Slice]:
    return [Slice(f"{start}-{end}", "", start, end, {}) for start, end in intervals]


def names(lanes: list[list[Slice]]) -> list[list[str]]:
    return [[item.name for item in lane] for lane in lanes]


def test_nested_and_adjacent_slices_share_a_lane() -> None:
    assert names(nest(slices((5, 8), (0, 10), (10, 12), (8, 10)))) == [["0-10", "5-8", "8-10", "10-12"]]


def test_an_overlap_opens_a_lane_and_takes_what_is_inside_it_along() -> None:
    # 6-9 lies in both 0-10 and 5-15; the one that began later is the one around it.
    assert names(nest(slices((0, 10), (5, 15), (6, 9)))) == [["0-10"], ["5-15", "6-9"]]


def test_units_never_share_time_on_a_lane_even_if_one_would_fit_inside_another() -> None:
    assert names(pack([slices((0, 10)), slices((2, 4)), slices((10, 12))])) == [["0-10", "10-12"], ["2-4"]]


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
        for first, second in itertools.pairwise(lane):
            assert first.end_ns <= second.start_ns
