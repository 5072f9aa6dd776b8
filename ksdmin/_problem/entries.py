"""Vectors kept in one array that grows, so that all of them are multiplied at once."""

from __future__ import annotations

from dataclasses import dataclass

from ksdmin._problem.arrays import Array, Space
from ksdmin._problem.values import made

# Room behind the entries, per entry that is kept: when it is full, all are copied.
ROOM = 0.25
ALL = slice(None)


class Room:
    """A buffer, and how many of its entries have been written."""

    def __init__(self, buffer: Array) -> None:
        self.buffer, self.written = buffer, 0


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries along the second axis of an array of vectors: a value, which never changes.

    A value with more entries shares the memory: they are written behind those of this one, where
    no other has written yet. Otherwise, and where there is no room, all are copied.
    """

    array: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "_room", None)

    def followed_by(self, space: Space, new: Array, keep: int, capacity: int) -> Entries:
        """These and some more, of which the last `keep` are left, and there may be `capacity`."""
        count = int(new.shape[1])
        if count >= keep:
            return Entries(new[:, count - keep :, :])
        room, stop = vars(self)["_room"] or (None, 0)
        if room is None or room.written != stop or stop + count > room.buffer.shape[1]:
            rows, length, _ = self.array.shape
            room = Room(space.rows(rows, capacity + max(1, int(ROOM * capacity))))
            stop = keep - count
            old = self.array[:, length - stop :, :]
            room.buffer = space.put(room.buffer, (ALL, slice(0, stop), ALL), old)
        where, stop = slice(stop, stop + count), stop + count
        room.buffer = space.put(room.buffer, (ALL, where, ALL), new)
        room.written = stop
        return made(Entries, array=room.buffer[:, stop - keep : stop, :], _room=(room, stop))
