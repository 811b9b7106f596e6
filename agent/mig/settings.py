"""What can be set about MIG beside layouts."""

from pathlib import Path

from msgspec import Struct

from inventory.layout.entries import WhenBusy


class MigSettings(Struct, frozen=True, kw_only=True):
    """``config_file`` is mig-parted's, of which the node's label chooses a configuration; None: the label is not read.

    ``when_busy`` is for that label: mig-parted's file has no word for it.
    """

    config_file: Path | None = None
    when_busy: WhenBusy = WhenBusy.REFUSE
