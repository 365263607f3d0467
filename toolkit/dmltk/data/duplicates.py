"""The same picture under two labels."""

from __future__ import annotations

import hashlib

from dmltk.data.split import Split

CHUNK = 256


def contradictions(split: Split) -> list[list[int]]:
    """Pictures that are equal byte for byte, as they are read, but not in their labels.

    Of a split that lists pairs, which knows no names, only those that a listed pair calls unlike.

    Returns:
        Groups of rows, in order.
    """
    alike: dict[bytes, list[int]] = {}
    for start in range(0, len(split), CHUNK):
        rows = range(start, min(start + CHUNK, len(split)))
        for row, picture in zip(rows, split.pictures.read(rows), strict=True):
            mark = hashlib.sha256(picture.contiguous().numpy().tobytes()).digest()
            alike.setdefault(mark, []).append(row)
    labels = split.labels.tolist()
    groups = [rows for rows in alike.values() if len({labels[row] for row in rows}) > 1]
    if split.pairs is None:
        return groups
    place = {row: number for number, rows in enumerate(groups) for row in rows}
    unlike = [(a, b) for a, b in split.pairs.tolist() if labels[a] != labels[b]]
    said = {place[a] for a, b in unlike if a in place and place[a] == place.get(b)}
    return [groups[number] for number in sorted(said)]
