"""What the peers take and give back."""

from dataclasses import dataclass

Value = bool | int | float | str | bytes


@dataclass(frozen=True)
class FilterRecord:
    """One Bloom filter of a file: where it is (length below 0: not said) and its bits."""

    row_group: int
    column: str
    offset: int
    length: int
    num_bytes: int
    bitset: bytes
