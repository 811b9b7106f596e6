"""A view that is older than our own last write decides nothing."""

from controller.watching.echoes import Echoes
from kube.reading.reflector import Key

POD = Key("team", "a")


def test_a_view_is_behind_until_it_shows_our_write() -> None:
    echoes = Echoes()
    assert not echoes.behind(POD, "u", "1")
    echoes.wrote(POD, "u", "12")
    assert echoes.behind(POD, "u", "9")
    assert echoes.behind(POD, "u", "11")
    assert not echoes.behind(POD, "u", "12")
    assert not echoes.behind(POD, "u", "9"), "the watch never goes back"


def test_another_object_of_the_name_is_not_behind() -> None:
    echoes = Echoes()
    echoes.wrote(POD, "u", "12")
    assert not echoes.behind(POD, "v", "3")
    echoes.wrote(POD, "v", "20")
    echoes.forget(POD)
    assert not echoes.behind(POD, "v", "3")
