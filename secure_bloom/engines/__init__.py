"""Data sets in other engines that need more than the interface of ``pyarrow.dataset``."""
