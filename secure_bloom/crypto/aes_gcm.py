"""AES-GCM: its sizes, and the limit on random nonces (NIST SP 800-38D)."""

KEY_SIZES = (16, 24, 32)
MAX_INVOCATIONS = 2**32  #: maximum number of encryptions with random nonces per key
NONCE_SIZE = 12
TAG_SIZE = 16
