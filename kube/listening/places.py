"""Places for connections: decides who gets one, and which connection gives its place to a newcomer. Pure, without
sockets and clocks.

A connection is first *shaking hands* (TLS), then a *stranger* (no request on it was granted yet), then a *user's*. Its
peer may belong to a *group*, which has places that nobody else takes: by its address, and then it stays a stranger, or
by its certificate, and then it is *proved*.

The rules:

- Everybody shares ``common`` places. A group fills its own places first and takes common ones beyond them.
- Strangers of one address are ``per_address`` at most, and connections of one user ``per_user``. A newcomer above
  that replaces the oldest of the same address or user.
- Where all common places are taken, the newcomer replaces the oldest stranger, or the oldest idle connection of a
  user, of the address or user that has most of these. So a peer that holds many connections keeps out itself alone.
- A connection with a request in work is closed only if it is a stranger's. A group's is never closed for others.
- Streams in a group's places leave ``kept_from_streams`` of them to requests.
"""

from collections.abc import Mapping
from typing import NewType

from msgspec import Struct

ConnectionId = NewType("ConnectionId", int)
"""The number of a connection, which grows with each connection of a listener: the smallest is the oldest."""
Group = NewType("Group", str)


class PlaceLimits(Struct, frozen=True, kw_only=True):
    """The most connections. ``groups``: places by group. ``shaking``: TLS handshakes at one time."""

    common: int
    per_address: int
    per_user: int
    shaking: int = 0
    groups: Mapping[Group, int] = {}
    kept_from_streams: int = 0

    @property
    def most(self) -> int:
        """The most connections that may exist at one time."""
        return self.common + self.shaking + sum(self.groups.values())


class _Place(Struct):
    """One connection. ``user`` is set for a connection whose last granted request was that user's."""

    address: str
    shaking: bool
    group: Group | None = None
    proved: bool = False
    user: str | None = None
    busy: bool = False
    streams: bool = False

    @property
    def stranger(self) -> bool:
        """Whether the connection counts for its address: its peer proved nothing and no request was granted."""
        return not self.proved and self.user is None

    @property
    def owner(self) -> tuple[bool, str]:
        """The address or the user that the connection counts for."""
        return (False, self.address) if self.user is None else (True, self.user)


class Places:
    """The connections of one listener. Each method that may need room returns the connections to close; these have no
    place any more, and ``left`` need not be called for them. A newcomer that is refused is among them.
    """

    def __init__(self, limits: PlaceLimits) -> None:
        self._limits = limits
        self._places: dict[ConnectionId, _Place] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, connection: ConnectionId) -> bool:
        return connection in self._places

    def arrived(
        self, connection: ConnectionId, address: str, *, shaking: bool = False, group: Group | None = None
    ) -> tuple[ConnectionId, ...]:
        """Take a new connection. ``shaking``: its TLS handshake is to come. ``group``: the group of its address."""
        place = _Place(address, shaking, group)
        self._places[connection] = place
        closed = self._closed_for_address(place)
        if shaking:
            return (*closed, *self._closed_of_shaking())
        return (*closed, *self._closed_for_room(connection))

    def identified(self, connection: ConnectionId, group: Group | None) -> tuple[ConnectionId, ...]:
        """Take note that the TLS handshake is done, and that the peer proved to be of ``group`` (None: it proved
        nothing).
        """
        place = self._places[connection]
        place.shaking, place.group, place.proved = False, group, group is not None
        return self._closed_for_room(connection)

    def granted(self, connection: ConnectionId, user: str) -> tuple[ConnectionId, ...]:
        """Take note that a request of ``user`` was granted on this connection. A group's connection brings requests of
        many users and counts for none of them.
        """
        place = self._places.get(connection)
        if place is None or place.group is not None or place.user == user:
            return ()
        place.user = user
        mine = [each for each, other in self._places.items() if other.user == user]
        if len(mine) <= self._limits.per_user:
            return ()
        idle = [each for each in mine if not self._places[each].busy and each != connection]
        return self._close(idle[0] if idle else connection)

    def full(self, connection: ConnectionId, user: str) -> bool:
        """Whether requests of ``user`` are in work on as many other connections as one user may have."""
        place = self._places.get(connection)
        if place is None or place.group is not None:
            return False
        busy = sum(each.busy and each.user == user and each is not place for each in self._places.values())
        return busy >= self._limits.per_user

    def began(self, connection: ConnectionId) -> None:
        """Take note that a request is in work on this connection."""
        if connection in self._places:
            self._places[connection].busy = True

    def ended(self, connection: ConnectionId) -> None:
        """Take note that the answer was sent."""
        place = self._places.get(connection)
        if place is not None:
            place.busy = place.streams = False

    def stream(self, connection: ConnectionId) -> bool:
        """Make the request a stream, which may last for hours. False where no place can be spared for it."""
        place = self._places.get(connection)
        if place is None:
            return False
        place.streams = True
        if self._common_taken() <= self._limits.common:
            return True
        place.streams = False
        return False

    def left(self, connection: ConnectionId) -> None:
        """Take note that the connection is closed. One that has no place is ignored."""
        self._places.pop(connection, None)

    def validate(self) -> None:
        """Recount all connections against the limits. Raises AssertionError."""
        limits, places = self._limits, self._places.values()
        assert sum(place.shaking for place in places) <= limits.shaking, "too many handshakes"
        assert self._common_taken() <= limits.common, "more connections than common places"
        assert len(places) <= limits.most, "more connections than places"
        strangers = [place.address for place in places if place.stranger]
        assert all(strangers.count(each) <= limits.per_address for each in strangers), "an address has too many"
        users = [place.user for place in places if place.user is not None]
        assert all(users.count(each) <= limits.per_user for each in users), "a user has too many"
        assert all(place.user is None or place.group is None for place in places), "a user's and a group's"
        assert all(place.busy or not place.streams for place in places), "a stream without a request"

    def _common_taken(self) -> int:
        """The common places in use, when each group has filled its own places: with requests first, then with
        streams.
        """
        taken = sum(place.group is None and not place.shaking for place in self._places.values())
        for group, own in self._limits.groups.items():
            members = [place for place in self._places.values() if place.group == group and not place.shaking]
            streams = sum(place.streams for place in members)
            requests = len(members) - streams
            streams_inside = min(streams, max(0, own - max(requests, self._limits.kept_from_streams)))
            taken += max(0, requests - own) + streams - streams_inside
        return taken

    def _closed_for_address(self, place: _Place) -> tuple[ConnectionId, ...]:
        if not place.stranger:
            return ()
        mine = [each for each, other in self._places.items() if other.stranger and other.address == place.address]
        return self._close(mine[0]) if len(mine) > self._limits.per_address else ()

    def _closed_of_shaking(self) -> tuple[ConnectionId, ...]:
        shaking = [each for each, place in self._places.items() if place.shaking]
        if len(shaking) <= self._limits.shaking:
            return ()
        return self._close(self._oldest_of_most(shaking))

    def _closed_for_room(self, connection: ConnectionId) -> tuple[ConnectionId, ...]:
        """Make room for a newcomer: one connection is closed where the common places are one too few."""
        if self._common_taken() <= self._limits.common:
            return ()
        candidates = [each for each, place in self._places.items() if self._may_close(place)]
        return self._close(self._oldest_of_most(candidates) if candidates else connection)

    @staticmethod
    def _may_close(place: _Place) -> bool:
        return place.group is None and not place.shaking and (place.stranger or not place.busy)

    def _oldest_of_most(self, candidates: list[ConnectionId]) -> ConnectionId:
        """The oldest candidate of the address or user that has most of them; the oldest of all where several have."""
        by_owner: dict[tuple[bool, str], list[ConnectionId]] = {}
        for each in candidates:
            by_owner.setdefault(self._places[each].owner, []).append(each)
        return max(by_owner.values(), key=lambda each: (len(each), -each[0]))[0]

    def _close(self, connection: ConnectionId) -> tuple[ConnectionId, ...]:
        del self._places[connection]
        return (connection,)
