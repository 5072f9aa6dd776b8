"""Values as plain ones; what cannot be saved, or read again, is named."""

from dataclasses import dataclass

import numpy as np
import pytest

from ksdmin._run.checkpoint_file import decode, encode


@dataclass(frozen=True)
class Inner:
    u: object


@dataclass(frozen=True)
class Outer:
    inner: Inner | None
    more: tuple[Inner, ...]
    value: object


def test_numbers_of_numpy_become_pythons():
    plain = encode(Inner((np.float64(0.1), np.int64(3), np.bool_(True), np.ones(2))))
    numbers = plain["value"]["fields"]["u"]["tuple"][:3]
    assert numbers == [0.1, 3, True]
    assert [type(u) for u in numbers] == [float, int, bool]
    assert decode(Inner, plain).u[3].tolist() == [1, 1]


def test_what_cannot_be_saved_is_told_where_it_is():
    with pytest.raises(TypeError, match=r"Outer\.more\[1\]\.u is a complex, which cannot be saved"):
        encode(Outer(None, (Inner(1), Inner(1j)), None))


def test_other_fields_are_refused():
    plain = encode(Inner(1))
    plain["value"]["fields"] = {"v": 1}
    with pytest.raises(ValueError, match=r"saved Inner has other fields than this one \(u, v\)"):
        decode(Inner, plain)


def test_classes_that_the_state_does_not_name_are_refused():
    with pytest.raises(ValueError, match=r"holds a 'Outer', which is unknown"):
        decode(Inner, encode(Outer(None, (), None)))
    with pytest.raises(ValueError, match=r"expected a saved Outer, not a Inner"):
        decode(Outer, encode(Inner(1)))
