"""Who gets a place among connections, and whose is taken for a newcomer."""

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from kube.listening.places import ConnectionId, Group, PlaceLimits, Places

PROXY, REPLICA, NODE = Group("proxy"), Group("replica"), Group("node")
LIMITS = PlaceLimits(
    common=40, per_address=8, per_user=4, shaking=10, groups={PROXY: 12, REPLICA: 4}, kept_from_streams=3
)


class Crowd:
    """Connections with growing numbers."""

    def __init__(self, limits: PlaceLimits = LIMITS) -> None:
        self.places = Places(limits)
        self.last = 0
        self.closed: list[ConnectionId] = []

    def come(self, address: str, group: Group | None = None) -> ConnectionId:
        """A connection after its handshake."""
        number = self.shake(address)
        if number in self.places:
            self.closed += self.places.identified(number, group)
        self.places.validate()
        return number

    def shake(self, address: str) -> ConnectionId:
        self.last += 1
        number = ConnectionId(self.last)
        self.closed += self.places.arrived(number, address, shaking=True)
        self.places.validate()
        return number

    def known(self, user: str, *, busy: bool = False) -> ConnectionId:
        number = self.come(f"of-{user}")
        self.places.began(number)
        self.closed += self.places.granted(number, user)
        if not busy:
            self.places.ended(number)
        self.places.validate()
        return number


def test_a_stranger_above_those_of_its_address_replaces_the_oldest_of_them() -> None:
    crowd = Crowd()
    first = crowd.come("10.0.0.1")
    other = crowd.come("10.0.0.2")
    for _ in range(LIMITS.per_address):
        crowd.come("10.0.0.1")
    assert crowd.closed == [first]
    assert other in crowd.places


def test_users_behind_one_address_are_no_strangers() -> None:
    crowd = Crowd()
    for user in "abc":
        for _ in range(LIMITS.per_user):
            number = crowd.come("ingress")
            crowd.places.granted(number, user)
    strangers = [crowd.come("ingress") for _ in range(LIMITS.per_address)]
    assert crowd.closed == []
    assert all(number in crowd.places for number in strangers)


def test_a_users_connection_above_the_bound_replaces_the_oldest_idle_one() -> None:
    crowd = Crowd()
    busy = crowd.known("ann", busy=True)
    idle = crowd.known("ann")
    for _ in range(LIMITS.per_user - 1):
        crowd.known("ann")
    assert crowd.closed == [idle]
    assert busy in crowd.places


def test_a_users_connection_is_refused_where_all_others_have_requests_in_work() -> None:
    crowd = Crowd()
    for _ in range(LIMITS.per_user):
        crowd.known("ann", busy=True)
    refused = crowd.known("ann", busy=True)
    assert crowd.closed == [refused]


def test_a_user_is_full_while_so_many_requests_are_in_work() -> None:
    crowd = Crowd()
    busy = [crowd.known("ann", busy=True) for _ in range(LIMITS.per_user)]
    new = crowd.come("of-ann")
    assert crowd.places.full(new, "ann")
    assert not crowd.places.full(busy[0], "ann"), "its own request does not count"
    assert not crowd.places.full(new, "bob")
    crowd.places.ended(busy[0])
    assert not crowd.places.full(new, "ann")


def test_addresses_that_fill_all_common_places_keep_nobody_else_out() -> None:
    crowd = Crowd()
    for count in range(LIMITS.common * 3):
        crowd.come(f"10.0.{count % 10}.1")
    ann = crowd.known("ann")
    bob = crowd.come("10.9.9.9")
    assert ann in crowd.places
    assert bob in crowd.places
    # The ten addresses go on: they take each other's places, since each has more than the two.
    for count in range(100):
        crowd.come(f"10.0.{count % 10}.1")
    assert ann in crowd.places
    assert bob in crowd.places


def test_idle_connections_of_many_users_make_room() -> None:
    crowd = Crowd()
    for count in range(LIMITS.common):
        crowd.known(f"user-{count % 10}")
    new = crowd.come("10.9.9.9")
    assert new in crowd.places
    assert len(crowd.closed) == 1


def test_a_full_house_of_users_at_work_refuses_strangers_and_not_the_front_proxy() -> None:
    crowd = Crowd()
    for count in range(LIMITS.common):
        crowd.known(f"user-{count % 10}", busy=True)
    assert crowd.come("10.9.9.9") in crowd.closed
    proxies = [crowd.come("10.1.1.1", PROXY) for _ in range(12)]
    replicas = [crowd.come("10.1.1.2", REPLICA) for _ in range(4)]
    assert all(number in crowd.places for number in (*proxies, *replicas))
    assert crowd.come("10.1.1.1", PROXY) in crowd.closed
    assert crowd.come("10.1.1.2", REPLICA) in crowd.closed


def test_the_front_proxy_takes_common_places_where_they_are_free() -> None:
    crowd = Crowd()
    proxies = [crowd.come("10.1.1.1", PROXY) for _ in range(30)]
    assert all(number in crowd.places for number in proxies)
    assert crowd.closed == []


def test_streams_leave_places_to_the_proxys_requests() -> None:
    crowd = Crowd()
    for count in range(LIMITS.common):
        crowd.known(f"user-{count % 10}", busy=True)
    begun = 0
    for _ in range(12):
        number = crowd.come("10.1.1.1", PROXY)
        crowd.places.began(number)
        begun += crowd.places.stream(number)
        crowd.places.ended(number) if not begun else None
        crowd.places.validate()
    assert begun == 12 - LIMITS.kept_from_streams


def test_handshakes_take_no_place_and_the_greediest_address_loses_its_oldest() -> None:
    crowd = Crowd()
    greedy = [crowd.shake("10.0.0.1") for _ in range(6)]
    others = [crowd.shake(f"10.0.1.{count}") for count in range(4)]
    new = crowd.shake("10.9.9.9")
    assert crowd.closed == [greedy[0]]
    assert all(number in crowd.places for number in (*others, new))
    assert len(crowd.places) == 10


def test_peers_of_the_nodes_own_addresses_have_places_and_are_bounded_together() -> None:
    places = Places(PlaceLimits(common=20, per_address=16, per_user=0, groups={NODE: 8}))
    for number in range(1, 40):
        places.arrived(ConnectionId(number), f"10.0.{number % 3}.1")
    own = [ConnectionId(100 + number) for number in range(16)]
    for each in own:
        places.arrived(each, "node", group=NODE)
        places.validate()
    assert all(each in places for each in own)
    assert places.arrived(ConnectionId(200), "node", group=NODE) == (own[0],)
    places.validate()


class AnyHistory(RuleBasedStateMachine):
    """Any order of events. The model here counts places by itself; ``validate`` recounts them beside it."""

    numbers = Bundle("numbers")

    def __init__(self) -> None:
        super().__init__()
        self.crowd = Crowd(
            PlaceLimits(common=6, per_address=3, per_user=2, shaking=3, groups={PROXY: 3}, kept_from_streams=1)
        )
        self.identified: set[ConnectionId] = set()
        self.proved: set[ConnectionId] = set()
        self.working: set[ConnectionId] = set()
        self.users: dict[ConnectionId, str] = {}

    def _closed(self, closed: tuple[ConnectionId, ...], newcomer: ConnectionId) -> None:
        for each in closed:
            assert each == newcomer or each not in self.proved, "a group's connection made room"
            assert each == newcomer or each not in self.users or each not in self.working, "a user's request was cut"
            self._gone(each)

    def _gone(self, number: ConnectionId) -> None:
        self.identified.discard(number)
        self.proved.discard(number)
        self.working.discard(number)
        self.users.pop(number, None)

    @rule(target=numbers, address=st.sampled_from("abcdefgh"))
    def arrive(self, address: str) -> ConnectionId:
        self.crowd.last += 1
        number = ConnectionId(self.crowd.last)
        self._closed(self.crowd.places.arrived(number, address, shaking=True), number)
        return number

    @rule(target=numbers, number=consumes(numbers), group=st.sampled_from([None, None, PROXY]))
    def identify(self, number: ConnectionId, group: Group | None) -> ConnectionId:
        if number in self.crowd.places and number not in self.identified:
            self.identified.add(number)
            if group is not None:
                self.proved.add(number)
            self._closed(self.crowd.places.identified(number, group), number)
        return number

    @rule(number=numbers, user=st.sampled_from("xyz"))
    def request(self, number: ConnectionId, user: str) -> None:
        if number not in self.identified:
            return
        self.crowd.places.began(number)
        self.working.add(number)
        closed = self.crowd.places.granted(number, user)
        if number in self.crowd.places and number not in self.proved:
            self.users[number] = user
        self._closed(closed, number)

    @rule(number=numbers)
    def stream(self, number: ConnectionId) -> None:
        if number in self.working:
            self.crowd.places.stream(number)

    @rule(number=numbers)
    def answer(self, number: ConnectionId) -> None:
        self.crowd.places.ended(number)
        self.working.discard(number)

    @rule(number=consumes(numbers))
    def leave(self, number: ConnectionId) -> None:
        self.crowd.places.left(number)
        self._gone(number)

    @invariant()
    def bounds_hold(self) -> None:
        self.crowd.places.validate()
        assert len(self.crowd.places) <= 6 + 3 + 3
        assert all(number in self.crowd.places for number in self.users)
        assert all(number in self.crowd.places for number in self.proved)


TestAnyHistory = AnyHistory.TestCase
