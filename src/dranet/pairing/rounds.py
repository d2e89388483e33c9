"""Who measures with whom: rounds in which every pod has one partner, and never the same twice (the circle method).

Pairs of one round share no pod, so they measure at the same time and do not measure each other. All rounds would be
N - 1, the whole matrix. Fewer will do: after two rounds a bad card has been slow with two partners, each of which was
well with somebody else. So log2 N rounds are the default, which leaves room for some more bad cards.
"""

from __future__ import annotations

import math

Round = list[tuple[int, int]]


def all_rounds(members: int) -> list[Round]:
    """Every pair once. With an odd number one pod rests in each round, every time another."""
    even = members + members % 2
    circle = list(range(even))
    found = []
    for _ in range(even - 1):
        pairs = [(circle[i], circle[-1 - i]) for i in range(even // 2)]
        found.append([(min(pair), max(pair)) for pair in pairs if max(pair) < members])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return found


def how_many(members: int) -> int:
    """log2 N, at least two where there are so many; one more where somebody rests in each."""
    wanted = max(2, math.ceil(math.log2(members))) + members % 2
    return min(wanted, members - 1 + members % 2)


def rounds(members: int, wanted: int = 0) -> list[Round]:
    """The first rounds; 0 for as many as are needed to find a bad card."""
    if members < 2:
        return []
    return all_rounds(members)[: wanted or how_many(members)]
