"""A KMS client for AWS KMS.

Wrapped keys are bound to the master key's name and to this library by an encryption context, which
AWS records in CloudTrail and which policies may refer to:

    secure_bloom:purpose        "key-wrapping"
    secure_bloom:master-key     the name of the master key, as the caller gave it
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable
from typing import Any

from secure_bloom.errors import (
    KeyAccessError,
    KeyNotFoundError,
    KeyRetrievalError,
    KeyUnwrapError,
    KmsUnavailableError,
    needs_extra,
)
from secure_bloom.keys.kms import check_endpoint, is_plain_http
from secure_bloom.keys.remote import LONGEST_RESPONSE, PerProcess, RemoteKms, decoded, no_response

# An ARN names an account, whose owner decides what it unwraps.
_ARN = re.compile(r"arn:[\w-]+:kms:[\w-]+:(\d{12}):(key|alias)/[\w/-]+", re.ASCII)
_ACCOUNT = re.compile(r"\d{12}", re.ASCII)
_THROTTLED = {"Throttling", "ThrottlingException", "RequestLimitExceeded",
              "TooManyRequestsException", "RequestThrottled", "SlowDown"}
_ANSWERS = {
    "NotFoundException": (KeyNotFoundError, "there is no such key in this account and region"),
    "InvalidArnException": (KeyNotFoundError, "there is no such key in this account and region"),
    "AccessDeniedException": (
        KeyAccessError, "access is denied; an IAM policy or the key policy must allow {action}"),
    "DisabledException": (KeyAccessError, "the key is disabled; enable it"),
    "KMSInvalidStateException": (
        KeyAccessError, "the key is pending deletion or otherwise unusable"),
    "InvalidKeyUsageException": (
        KeyAccessError, "the key is not a symmetric encryption key"),
    "IncorrectKeyException": (
        KeyUnwrapError, "this was wrapped with another KMS key; an alias may have been moved"),
    "InvalidCiphertextException": (
        KeyUnwrapError, "the wrapped key cannot be unwrapped; it was changed, or wrapped under "
                        "another name of the key"),
} | dict.fromkeys(
    ("UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException",
     "SignatureDoesNotMatch", "IncompleteSignature", "IncompleteSignatureException",
     "ExpiredTokenException", "ExpiredToken", "MissingAuthenticationTokenException",
     "MissingAuthenticationToken"),
    (KeyAccessError, "the AWS credentials are missing, wrong or expired"))


class AwsKms(RemoteKms):
    """Master keys in AWS KMS, through boto3 with its default credential search.

    A master key is named by its key id, its key ARN, or an alias such as ``alias/bloom``. The name
    is authenticated: a key that was wrapped as ``alias/bloom`` can be unwrapped only as
    ``alias/bloom``, not by the ARN behind it, and no longer once the alias points elsewhere.

    A reader takes the name from the file. Anyone who can write files could name a key of another
    account, which would be called, and could return any key. So an ARN is unwrapped only if its
    account is in ``accounts``.

    Only the settings are pickled. Thread-safe, and usable after a fork.

    Parameters
    ----------
    region : str, optional
        Default: determined by boto3.
    endpoint_url : str, optional
        An endpoint other than the region's own; HTTPS, or HTTP on a loopback address.
    profile : str, optional
        A profile of the AWS configuration files.
    accounts : iterable of str, optional
        Accounts (12 digits) whose keys may unwrap. Default: the
        account of the credentials, for which AWS STS is asked once if a name is an ARN.
    timeout : float
        Seconds to wait for the connection, and again for the response.
    attempts : int
        Maximum number of attempts per call (botocore's standard mode, which waits up to 1, 2, 4 ...
        20 seconds in between).

    Raises
    ------
    ValueError
        If the endpoint, an account or a limit cannot be used.
    """

    def __init__(self, region: str | None = None, *, endpoint_url: str | None = None,
                 profile: str | None = None, accounts: Iterable[str] | None = None,
                 timeout: float = 5, attempts: int = 4):
        self.accounts = None if accounts is None else _checked_accounts(accounts)
        if endpoint_url is not None:
            check_endpoint(endpoint_url)
        super().__init__(timeout, attempts)
        self.region = region
        self.endpoint_url = endpoint_url
        self.profile = profile
        self._own_account = PerProcess()

    def _wrap(self, key: bytes, name: str) -> str:
        blob = self._call("Encrypt", "CiphertextBlob", name, Plaintext=key)
        return base64.b64encode(blob).decode("ascii")

    def _unwrap(self, wrapped: str, name: str) -> bytes:
        blob = decoded(wrapped)
        if not blob:
            raise KeyUnwrapError("the wrapped key is not valid base64")
        self._check_account(name)
        return self._call("Decrypt", "Plaintext", name, CiphertextBlob=blob)

    def _check_account(self, name: str) -> None:
        """Check that a name which a file has given is not that of a foreign key."""
        if ":" not in name:
            return  # a key id or an alias, in the account of the credentials
        arn = _ARN.fullmatch(name)
        if arn is None:
            raise KeyNotFoundError("this is not a valid KMS key name")
        allowed = self.accounts
        if allowed is None:
            allowed = [self._own_account.get(self._find_account)]
        if arn[1] not in allowed:
            raise KeyAccessError(
                f"it belongs to account {arn[1]}, whose keys are not accepted, because whoever "
                "wrote the file could choose it; if you trust that account, specify accounts= "
                "(awskms:?accounts=...)")

    def _find_account(self) -> str:
        try:
            client = self._open("sts", None)
            account = client.get_caller_identity().get("Account")
        except KeyRetrievalError:
            raise
        except Exception as error:  # as for a call of KMS
            raise KmsUnavailableError(
                "AWS STS does not say of which account the credentials are "
                f"({type(error).__name__}); specify accounts= (awskms:?accounts=...)") from None
        if not isinstance(account, str):
            raise KmsUnavailableError("this is not a valid AWS STS response")
        return account

    def _call(self, action: str, result: str, name: str, **parameters: Any) -> bytes:
        client = self._connection.get(lambda: self._open("kms", self.endpoint_url))
        from botocore.exceptions import BotoCoreError, ClientError
        context = {"secure_bloom:purpose": "key-wrapping", "secure_bloom:master-key": name}
        try:
            answer = getattr(client, action.lower())(
                KeyId=name, EncryptionContext=context, **parameters)
        except ClientError as error:
            raise _refusal(error, action) from error
        except BotoCoreError as error:
            raise _fault(error) from _harmless(error)
        except Exception as error:  # botocore's parser raises many; some quote the response
            raise KmsUnavailableError("this is not a valid AWS KMS response "
                                      f"({type(error).__name__})") from None
        value = answer.get(result) if isinstance(answer, dict) else None
        if not isinstance(value, bytes):
            raise KmsUnavailableError("this is not a valid AWS KMS response")
        return value

    def _open(self, service: str, endpoint_url: str | None) -> Any:
        """Return a client of a service of AWS."""
        with needs_extra("AWS KMS needs boto3", "aws"):
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        config = Config(connect_timeout=self.timeout, read_timeout=self.timeout,
                        retries={"mode": "standard", "total_max_attempts": self.attempts})
        try:
            session = boto3.session.Session(profile_name=self.profile)
            client = session.client(service, region_name=self.region, config=config,
                                    endpoint_url=endpoint_url)
            if is_plain_http(client.meta.endpoint_url):  # a proxy would see the keys
                client = session.client(service, region_name=self.region,
                                        config=config.merge(Config(proxies={})),
                                        endpoint_url=client.meta.endpoint_url)
        except BotoCoreError as error:
            raise _fault(error) from error
        check_endpoint(client.meta.endpoint_url)  # it may come from the environment
        _limit_responses(client)
        return client

    def _where(self, name: str) -> str:
        return f"AWS KMS, master key {name!r}"

    def __repr__(self) -> str:
        return (f"<AwsKms region={self.region!r} endpoint_url={self.endpoint_url!r} "
                f"profile={self.profile!r}>")


def _checked_accounts(accounts: Iterable[str]) -> list[str]:
    found = [accounts] if isinstance(accounts, str) else list(accounts)
    if not all(isinstance(one, str) and _ACCOUNT.fullmatch(one) for one in found):
        raise ValueError("accounts must be a list of account ids of 12 digits each")
    return found


def _limit_responses(client: Any) -> None:
    """Make a client refuse responses that are too long.

    No event or setting of botocore is called before it has read a whole response, so this uses
    names that are not public. Where a botocore does not have them, responses may have any length.
    """
    endpoint = getattr(client, "_endpoint", None)
    session = getattr(endpoint, "http_session", None)
    if endpoint is not None and session is not None:
        endpoint.http_session = _ShortResponses(session)


class _ShortResponses:
    """An HTTP session of botocore, which by itself reads responses of any length."""

    def __init__(self, session: Any):
        self._session = session

    def send(self, request: Any) -> Any:
        """Send a request; return the response, whose body has been read."""
        from botocore.exceptions import ConnectionClosedError
        from urllib3.exceptions import HTTPError
        from urllib3.response import HTTPResponse
        request.stream_output = True
        response, body = self._session.send(request), b""
        try:
            for part in response.raw.stream():
                body += part
                if len(body) > LONGEST_RESPONSE:
                    response.raw.close()
                    raise ValueError("the response is too long")
        except HTTPError as error:  # as botocore does when it reads a response
            raise ConnectionClosedError(error=error, endpoint_url=request.url) from error
        response.raw = HTTPResponse(io.BytesIO(body), preload_content=False)
        return response

    def close(self) -> None:
        """Close its connections."""
        self._session.close()


def _refusal(error: Any, action: str) -> KeyRetrievalError:
    """Return the error for an error response."""
    code = str(error.response.get("Error", {}).get("Code"))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _ANSWERS:
        kind, meaning = _ANSWERS[code]
        return kind(f"{meaning.format(action=f'kms:{action}')} ({code})")
    if code in _THROTTLED or status == 429 or status >= 500:
        return KmsUnavailableError(f"overloaded or failing ({code}); try again later")
    return KeyRetrievalError(f"the request was refused ({code})")


def _fault(error: Any) -> KeyRetrievalError:
    """Return the error for a call that got no response."""
    from botocore import exceptions as boto
    name = type(error).__name__
    if isinstance(error, boto.HTTPClientError | boto.ConnectionError):
        return no_response(error)
    if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError
                  | boto.CredentialRetrievalError | boto.TokenRetrievalError | boto.SSOError):
        return KeyAccessError(f"AWS credentials could not be obtained ({name})")
    if isinstance(error, boto.ParamValidationError):
        return KeyNotFoundError("this is not a valid KMS key name")
    return KeyRetrievalError(f"the AWS configuration is unusable ({name}); set a region, and check "
                             "that the profile exists")


def _harmless(error: Any) -> Any:
    """Return the error as a cause, or None if it could contain the request, and so the key."""
    from botocore import exceptions as boto
    return None if isinstance(error, boto.HTTPClientError | boto.ParamValidationError) else error
