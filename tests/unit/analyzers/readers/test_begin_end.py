"""Which begin an end belongs to, against a search through everything that is open."""

from hypothesis import given
from hypothesis import strategies as st

from analyzers.readers.begin_end import OpenSpans, TimedEvent
from analyzers.readers.chrome_events import Event
from analyzers.table.spans import Lane


def begin(name: str, at_ns: int) -> TimedEvent:
    return TimedEvent(at_ns, True, name, Event(), Lane("file", 1, 1), "")


def searched(
    open_spans: list[TimedEvent], name: str, cut: bool
) -> tuple[TimedEvent | None, list[TimedEvent]]:
    for index in reversed(range(len(open_spans))):
        if not name or open_spans[index].name == name:
            found = open_spans.pop(index)
            inside = open_spans[index:] if cut else []
            if cut:
                del open_spans[index:]
            return found, inside
    return None, []


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["", "a", "b", "c"]))), st.booleans())
def test_it_finds_what_a_search_finds(events: list[tuple[bool, str]], cut: bool) -> None:
    fast, slow = OpenSpans(), list[TimedEvent]()
    for at_ns, (is_begin, name) in enumerate(events):
        if is_begin:
            fast.push(begin(name, at_ns))
            slow.append(begin(name, at_ns))
        else:
            assert fast.pop(name, cut=cut) == searched(slow, name, cut)
        assert fast.left() == slow


def test_an_end_cuts_what_is_open_inside_of_its_span() -> None:
    spans = OpenSpans()
    for at_ns, name in enumerate(["outer", "inner", "innermost"]):
        spans.push(begin(name, at_ns))
    assert spans.pop("outer", cut=True) == (begin("outer", 0), [begin("inner", 1), begin("innermost", 2)])
    assert spans.left() == []
