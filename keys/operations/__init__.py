"""Operations on the keys of existing files: list them, rotate them."""
