"""Quantities, versions, patterns: the values selectors are mostly about."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dranet.cel.libraries.numbers import SemverError, parse_semver
from dranet.cel.regex import RegexError, compile_re2
from dranet.core.quantity import QuantityError, parse_quantity


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1Gi", "1Gi"), ("1024Mi", "1Gi"), ("1500m", "1500m"), ("1.5", "1500m"), ("0.5Gi", "512Mi"), ("1000k", "1M"),
        ("1e3", "1e3"), ("1E3", "1E3"), ("100G", "100G"), ("0", "0"), ("1023Ki", "1023Ki"), ("500Mi", "500Mi"),
    ],
)  # fmt: skip
def test_quantities_print_in_their_own_notation(text: str, canonical: str) -> None:
    assert str(parse_quantity(text)) == canonical


@pytest.mark.parametrize("text", ["", "x", "1Gb", "1 Gi", "--1", "1.2.3"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(text)


def test_quantities_below_a_billionth_are_rounded_up() -> None:
    assert parse_quantity("0.0000000001") == parse_quantity("1n")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(-(10**15), 10**15), st.sampled_from(["", "k", "M", "Ki", "Mi", "Gi", "m"]))
def test_a_printed_quantity_reads_back_as_the_same_value(number: int, suffix: str) -> None:
    quantity = parse_quantity(f"{number}{suffix}")
    assert parse_quantity(str(quantity)) == quantity


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_sums_of_quantities_are_exact(left: int, right: int) -> None:
    total = parse_quantity(f"{left}m").add(parse_quantity(f"{right}Ki"))
    assert total.value * 1000 == left + right * 1024 * 1000


def test_versions_order_pre_releases_and_ignore_builds() -> None:
    ordered = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-2", "1.0.0", "1.0.1"]
    versions = sorted((parse_semver(text) for text in ordered), key=lambda version: version._key())
    assert [version.compare(parse_semver("1.0.0")) for version in versions] == [-1, -1, -1, -1, 0, 1]
    assert parse_semver("1.0.0+a").compare(parse_semver("1.0.0+b")) == 0


@pytest.mark.parametrize("text", ["", "1", "1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(SemverError):
        parse_semver(text)


@pytest.mark.parametrize("pattern", ["(?=x)", "(?<!x)", r"(a)\1", "a**", "[z-a]", "(", ")", "a{1001}", r"\y"])
def test_patterns_re2_lacks_are_refused(pattern: str) -> None:
    with pytest.raises(RegexError):
        compile_re2(pattern)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [("a$", "a\n", False), (r"^\s$", "\v", False), ("[[:alpha:]]+", "eth", True), (r"\Qa.b\E", "a.b", True),
     (r"^\d$", "٣", False), ("(?i)ETH", "eth", True), (r"\z", "", True), ("a{,2}", "a{,2}", True)],
)  # fmt: skip
def test_patterns_mean_what_re2_says(pattern: str, text: str, found: bool) -> None:
    assert compile_re2(pattern).is_in(text) is found
