from typing import Any

import pytest

from dsv4bench.model.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer()


def test_no_special_tokens_unless_asked(tokenizer: Any) -> None:
    ids = tokenizer.encode("Huawei is")
    assert ids == [42, 5207, 24063, 344]
    assert tokenizer.encode("Huawei is", bos=True) == [0, *ids]


@pytest.mark.parametrize("text", ["", " Huawei  is , ok", "naïve 中文 🙂\n\tx"])
def test_text_survives_the_round_trip(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_special_tokens_decode_to_their_names(tokenizer: Any) -> None:
    assert tokenizer.decode([0, 1]) == "<｜begin▁of▁sentence｜><｜end▁of▁sentence｜>"  # noqa: RUF001
