"""AES-GCM: its sizes, and the limit of random nonces (NIST SP 800-38D)."""

KEY_SIZES = (16, 24, 32)
MAX_INVOCATIONS = 2**32  #: encryptions that one key may make with random nonces
NONCE_SIZE = 12
TAG_SIZE = 16
