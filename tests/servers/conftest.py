from tests.servers.fixtures import vault

__all__ = ["vault"]
