"""What whoever runs a collector may set."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_STORE = "collector.db"
STORE_VARIABLE = "PRIVSKETCH_STORE"  # a URL may have a password, which is no argument


@dataclass(frozen=True)
class Settings:
    """Limits of a collector; the defaults are for studies of some hundred sites.

    Attributes
    ----------
    member_rate, member_burst : float
        Requests a second of one member in the long run, and at once.
    failure_rate, failure_burst : float
        Requests a second without a valid token, of one address.
    head_seconds : float
        How long a connection may take to ask something whole.
    body_seconds : float
        How long a body may take, whatever its size.
    body_rate : float
        Bytes a second that a large body must bring beyond that.
    max_bodies : int
        Files of one member on their way at a time.
    max_body_bytes : int
        Bytes of all files on their way at a time; each is in memory until it is answered.
    max_requests : int
        Connections and requests at a time; more are told to come again.
    """

    member_rate: float = 20.0
    member_burst: float = 100.0
    failure_rate: float = 2.0
    failure_burst: float = 30.0
    head_seconds: float = 15.0
    body_seconds: float = 20.0
    body_rate: float = 20_000.0
    max_bodies: int = 8
    max_body_bytes: int = 256 * 2**20
    max_requests: int = 1000
