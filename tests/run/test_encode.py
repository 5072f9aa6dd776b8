"""Any value can be saved as plain values, and is the same afterwards.

(States of runs: test_checkpoint.py.)
"""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ksdmin._run.checkpoint_file import decode, encode
from tests.ksd.snapshots import snapshot


def assert_plain(value):
    if isinstance(value, dict):
        assert all(type(key) is str for key in value)
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        assert type(value) in (tuple, list)
        for part in value:
            assert_plain(part)
    else:
        assert type(value) in (type(None), bool, int, float, str, np.ndarray)


# Any value


@dataclass(frozen=True)
class Inner:
    u: object


@dataclass(frozen=True)
class Outer:
    inner: Inner | None
    more: tuple[Inner, ...]
    value: object


numbers = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
arrays = st.lists(st.floats(width=32), max_size=3).map(np.array)
ends = st.none() | st.integers(-9, 9)
slices = st.builds(slice, ends, ends, st.none() | st.integers(1, 3))
ranges = st.builds(range, st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 3))
values = st.recursive(
    numbers | arrays | slices | ranges,
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=8,
)
inners = st.builds(Inner, values)


@settings(max_examples=40, deadline=None)
@given(st.builds(Outer, st.none() | inners, st.lists(inners, max_size=2).map(tuple), values))
def test_whatever_it_is_made_of_comes_back(outer):
    plain = encode(outer)
    assert_plain(plain)
    again = decode(Outer, plain)
    assert snapshot(again) == snapshot(outer)
    assert types(again.value) == types(outer.value)


def types(value):
    inner = [types(part) for part in value] if isinstance(value, (tuple, list)) else []
    return type(value), inner


def test_numbers_of_numpy_become_pythons():
    plain = encode(Inner((np.float64(0.1), np.int64(3), np.bool_(True))))
    assert plain["value"]["fields"]["u"] == (0.1, 3, True)
    assert_plain(plain)


def test_plain_values_without_arrays_are_json():
    value = Outer(Inner((1, 2.5, "a")), (), slice(None))
    read = json.loads(json.dumps(encode(value)))
    assert decode(Outer, read) == Outer(Inner([1, 2.5, "a"]), [], slice(None))


def test_arrays_are_changed_by_the_function_given_once_each():
    u, calls = np.ones(2), []

    def array(v):
        calls.append(v)
        return v + 1

    again = decode(Inner, encode(Inner((u, u))), array=array)
    assert len(calls) == 1
    assert again.u[0] is again.u[1]
    assert again.u[0].tolist() == [2.0, 2.0]


# What is refused


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
