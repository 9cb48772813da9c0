"""Existing files encrypted, encrypted again, or decrypted, without decoding their pages."""
