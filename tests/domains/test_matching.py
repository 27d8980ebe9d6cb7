"""LIKE and REGEXP take time by the text's length: what used to stand still for seconds or years is done at once."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domains.errors import SqlError, Unsupported
from domains.language.expressions import Constant, Field
from domains.language.functions import call
from domains.language.functions.matching import MOST_SIZE, _size, _tokens, check, like_matcher, regexp
from domains.language.functions.searching import regexp_replace
from domains.language.types import TEXT

LONG = 60_000
"""Characters. A matcher that goes back over the text takes 3.6 * 10**9 steps and more: no test ends with it."""


def by_backtracking(pattern: str, text: str) -> bool:
    """LIKE as a regular expression of Python's, which is right, and slow."""
    expression = "".join(
        (".*" if character == "%" else ".") if wild else re.escape(character)
        for character, wild in _tokens(pattern, "\\")
    )
    return re.fullmatch(expression, text, re.DOTALL) is not None


@settings(max_examples=500, derandomize=True)
@given(pattern=st.text("ab%_\\\n", max_size=9), text=st.text("ab%\n", max_size=12))
def test_like_is_what_backtracking_finds(pattern: str, text: str) -> None:
    assert bool(like_matcher(pattern)(text)) == by_backtracking(pattern, text)


@pytest.mark.parametrize("pattern", ["%a%b%c%d", "%a_a%b_%c%d%", "a%a%a%a%a%b", "%_a%_a%_a%_a%_a%_ab", "%aaaa%aaaa%d%"])
def test_like_with_many_wildcards_does_not_stand_still(pattern: str) -> None:
    assert not like_matcher(pattern)("a" * LONG + "abc" * 100)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "a.*b.*c.*d", "(.*)*x", "x*x*x*x*x*y"])
def test_regexp_that_backtracks_elsewhere_does_not_stand_still(pattern: str) -> None:
    assert regexp("a" * LONG + "!", pattern) == 0


@pytest.mark.parametrize(
    ("pattern", "refused", "words"),
    [
        ("(", SqlError, "is not a regular expression: missing )"),
        ("*a", SqlError, "is not a regular expression"),
        (")a(", SqlError, "is not a regular expression"),
        (r"(a)\1", Unsupported, "Backreferences"),
        ("(?=a)b", Unsupported, "(?="),
        ("(?>a)b", Unsupported, "(?>"),
        ("(.{30}){30}", Unsupported, "900 characters"),
        ("a" * 1001, Unsupported, "1001 characters"),
    ],
)
def test_what_is_not_done_is_refused_while_it_is_planned(pattern: str, refused: type[Exception], words: str) -> None:
    with pytest.raises(refused) as caught:
        call("regexp", Field(0, TEXT), Constant(pattern, TEXT))
    assert words in str(caught.value)
    assert regexp("a", pattern) is None, "a pattern that a row brings has nobody to tell"


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("", 0),
        ("abc", 3),
        ("^a.*b$", 3),
        ("[]a-z[:digit:]]{3}x", 4),
        ("(ab|cd){2,5}e", 21),
        ("a{2,}", 2),
        (r"\{2\}", 3),
        (r"\p{L}{7}", 7),
        ("(?:(?i:a{3}){3}){3}", 27),
        ("a{x}", 4),
    ],
)
def test_size_counts_repetitions_written_out(pattern: str, size: int) -> None:
    assert _size(pattern) == size


def test_half_a_surrogate_pair_is_some_character() -> None:
    assert regexp("a\ud800b", "^a.b$") == 1


def test_patterns_of_daily_use_are_within_the_limit() -> None:
    check(r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
    check(r"^[\w.+-]+@[\w-]+(\.[\w-]+)+$")
    check(f"^.{{1,{MOST_SIZE}}}$")


@pytest.mark.parametrize("by", ["$2", "$", "a$b", "\\u0041"])
def test_a_replacement_that_is_none_is_refused_while_it_is_planned_and_null_from_a_row(by: str) -> None:
    with pytest.raises(SqlError, match="is no replacement of"):
        call("regexp_replace", Field(0, TEXT), Constant("(b)", TEXT), Constant(by, TEXT))
    assert regexp_replace("abc", "(b)", by) is None


def test_places_within_a_character_are_not_told_and_refused() -> None:
    with pytest.raises(Unsupported, match="REGEXP_INSTR by"):
        call("regexp_instr", Field(0, TEXT), Constant(r"\B", TEXT))
    assert regexp_replace("aé", r"\B", "-") is None


def test_a_long_text_is_replaced_in_time_by_its_length() -> None:
    assert regexp_replace("aé" * LONG, "é|x*", "") == "a" * LONG
