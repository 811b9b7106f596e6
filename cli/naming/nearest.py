"""A group of commands that names the one that was probably meant."""

from difflib import get_close_matches

import click
from click.exceptions import NoSuchCommand

MOST = 3


class NearestGroup(click.Group):
    """A group that looks among all its commands. Click's own looks among the commands that it has loaded, and knows no
    other word for them.
    """

    def words(self, ctx: click.Context) -> dict[str, str]:
        """The words that people type, and the command that each means."""
        return {name: name for name in self.list_commands(ctx)}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand:
            words = self.words(ctx)
            close = [words[args[0]]] if args[0] in words else get_close_matches(args[0], words, MOST)
            meant = list(dict.fromkeys(words.get(word, word) for word in close))
            if not meant:
                raise NoSuchCommand(args[0], ctx=ctx) from None
            *others, last = (repr(word) for word in meant)
            also = f"{', '.join(others)} or {last}" if others else last
            raise NoSuchCommand(args[0], f"No such command {args[0]!r}. Did you mean {also}?", ctx=ctx) from None
