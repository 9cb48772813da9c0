"""What is done to the keys of existing files: list them, rotate them."""
