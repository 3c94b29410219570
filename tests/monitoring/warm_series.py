"""One period, counted when this is imported: processes that are forked afterwards lose no time."""

from tests.monitoring.small_series import World, over, quick_folder

with quick_folder() as folder:
    World.create(folder / "series").grow(0).monitor(over(0))
