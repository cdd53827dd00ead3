"""SCRAM-SHA-256, the server's side (RFC 5802 and 7677), without channel binding. Nonces and salts are arguments.

A name that nobody has goes through the same steps and fails at the end, so that an answer does not say which names there are.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from dataclasses import dataclass

from millstream.client.gateway.postgres.sqlstates import INVALID_PASSWORD, PROTOCOL_VIOLATION, PgError

MECHANISM = "SCRAM-SHA-256"
ITERATIONS = 4_096  # PostgreSQL's default


@dataclass(frozen=True, slots=True)
class Verifier:
    """What is known of a password: enough to check it, too little to use it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes


def verifier_of(password: str, salt: bytes) -> Verifier:
    """Return the verifier of a password. (SASLprep changes nothing in the letters and digits that tokens are made of.)"""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    return Verifier(salt, hashlib.sha256(client_key).digest(), hmac.digest(salted, b"Server Key", "sha256"))


class ScramServer:
    """One exchange: `first` takes the client's first message, `last` its second. `known` is false for a name that nobody has."""

    def __init__(self, verifier: Verifier, nonce: str, *, known: bool = True) -> None:
        self._verifier = verifier
        self._nonce = nonce
        self._known = known
        self._binding = b""
        self._so_far = ""

    def first(self, data: bytes) -> bytes:
        """Return the server's first message. `PgError` (fatal) when the client's is malformed."""
        text = _text(data)
        flag, comma, rest = text.partition(",")
        authzid, comma, bare = rest.partition(",")
        if not comma or (flag not in ("n", "y")):
            raise _malformed("no channel binding is offered here" if flag.startswith("p=") else "the first message")
        parts = _attributes(bare)
        if not parts.get("r") or "n" not in parts:
            raise _malformed("the first message has no name and nonce")
        self._binding = b64encode(f"{flag},{authzid},".encode())
        self._nonce = parts["r"] + self._nonce
        answer = f"r={self._nonce},s={b64encode(self._verifier.salt).decode()},i={ITERATIONS}"
        self._so_far = f"{bare},{answer}"
        return answer.encode()

    def last(self, data: bytes) -> bytes:
        """Return the server's last message. `PgError` (fatal) when the password is wrong."""
        text = _text(data)
        without_proof, comma, proof_text = text.rpartition(",p=")
        parts = _attributes(without_proof)
        if not comma or parts.get("c") != self._binding.decode() or parts.get("r") != self._nonce:
            raise _malformed("the last message does not fit the first")
        try:
            proof = b64decode(proof_text, validate=True)
        except (BadBase64, ValueError):
            raise _malformed("the proof is not base64") from None
        said = f"{self._so_far},{without_proof}".encode()
        signature = hmac.digest(self._verifier.stored_key, said, "sha256")
        key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        fits = len(proof) == len(signature) and hmac.compare_digest(hashlib.sha256(key).digest(), self._verifier.stored_key)
        if not (fits and self._known):
            raise PgError(INVALID_PASSWORD, "the password is wrong: user is a role, password its token", fatal=True)
        return b"v=" + b64encode(hmac.digest(self._verifier.server_key, said, "sha256"))


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise _malformed("a message is not UTF-8") from None


def _attributes(text: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _malformed(why: str) -> PgError:
    return PgError(PROTOCOL_VIOLATION, f"malformed SCRAM exchange: {why}", fatal=True)
