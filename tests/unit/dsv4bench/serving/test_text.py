"""Text while it arrives is the text of all tokens, and stop strings end it."""

from hypothesis import given
from hypothesis import strategies as st

from dsv4bench.serving.text import TextStream
from tests.unit.dsv4bench.serving.client import TOKENIZER

TOKENS = st.lists(st.integers(0, 129279), max_size=12)
LETTERS = st.text("abc", min_size=1, max_size=4)


@given(TOKENS)
def test_what_is_sent_makes_up_the_whole_text(tokens: list[int]) -> None:
    text = TextStream(TOKENIZER, skip_special_tokens=False)
    assert "".join([*map(text.feed, tokens), text.finish()]) == TOKENIZER.decode(tokens)


@given(TOKENS)
def test_special_tokens_are_left_out(tokens: list[int]) -> None:
    text = TextStream(TOKENIZER)
    kept = [token for token in tokens if not TOKENIZER.is_special(token)]
    assert "".join([*map(text.feed, tokens), text.finish()]) == TOKENIZER.decode(kept)
    assert all(TOKENIZER.is_special(token) for token in (0, 1))


@given(st.text("abc", max_size=20), st.lists(LETTERS, min_size=1, max_size=3))
def test_nothing_of_a_stop_string_nor_behind_it_is_sent(whole: str, stop: list[str]) -> None:
    text = TextStream(TOKENIZER, stop)
    letters = {letter: TOKENIZER.encode(letter)[0] for letter in "abc"}
    sent = ""
    for letter in whole:
        sent += text.feed(letters[letter])
        if text.stopped is not None:
            break
    sent += text.finish()
    # The first to be whole ends the text; of those that are whole at once, the one that begins first.
    ends = [
        (place + len(one), place)
        for one in stop
        for place in range(len(whole))
        if whole.startswith(one, place)
    ]
    if ends:
        first_end = min(ends)[0]
        place = min(place for end, place in ends if end == first_end)
        assert sent == whole[:place]
        assert text.tokens == first_end
    else:
        assert sent == whole
        assert text.stopped is None
