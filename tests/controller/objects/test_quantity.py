import contextlib
import copy
import pickle
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.objects.quantity import (
    MAX_INT64,
    NANO,
    Format,
    Quantity,
    QuantityError,
    parse_quantity,
)

FACTORS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{name: Fraction(1000**power) for power, name in enumerate("kMGTPE", start=1)},
    **{f"{name}i": Fraction(1024**power) for power, name in enumerate("KMGTPE", start=1)},
}
NUMBERS = st.from_regex(r"[+-]?([0-9]{1,9}(\.[0-9]{0,12})?|\.[0-9]{1,12})", fullmatch=True)


def exact(number: str) -> Fraction:
    return Fraction(number.strip().rstrip(".") or "0")


@given(number=NUMBERS, suffix=st.sampled_from(sorted(FACTORS)))
def test_a_quantity_is_its_number_times_its_suffix_rounded_up_to_a_nano_unit(number: str, suffix: str) -> None:
    wanted = exact(number) * FACTORS[suffix]
    if suffix.endswith("i"):
        wanted = max(Fraction(-MAX_INT64), min(Fraction(MAX_INT64), wanted))
    quantity = parse_quantity(number + suffix)
    assert abs(wanted) <= abs(quantity.fraction) < abs(wanted) + Fraction(1, NANO)
    assert quantity.nanos * wanted >= 0


@given(number=NUMBERS, exponent=st.integers(-20, 20), letter=st.sampled_from("eE"))
def test_a_decimal_exponent_moves_the_point(number: str, exponent: int, letter: str) -> None:
    wanted = exact(number) * Fraction(10) ** exponent
    found = parse_quantity(f"{number}{letter}{exponent}").fraction
    assert abs(wanted) <= abs(found) < abs(wanted) + Fraction(1, NANO)


@given(nanos=st.integers(-(10**30), 10**30), form=st.sampled_from(Format))
def test_what_is_written_reads_back_as_the_same_amount(nanos: int, form: Format) -> None:
    quantity = Quantity(nanos, form)
    again = parse_quantity(str(quantity))
    assert again == quantity or (form is Format.BINARY_SI and abs(nanos) > MAX_INT64 * NANO)
    assert str(again) == str(quantity) or form is not Format.DECIMAL_SI


@given(nanos=st.integers(-(10**30), 10**30))
def test_values_round_away_from_zero_and_stay_in_int64(nanos: int) -> None:
    quantity = Quantity(nanos)
    assert abs(quantity.value) <= MAX_INT64
    assert abs(quantity.value) == MAX_INT64 or abs(nanos) <= abs(quantity.value) * NANO < abs(nanos) + NANO


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1500m", "1500m"),
        ("1.5", "1500m"),
        ("12000", "12k"),
        ("100000k", "100M"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1.1Ki", "1126400m"),
        ("1024", "1024"),
        ("2048Ki", "2Mi"),
        ("1e3", "1e3"),
        ("3e2", "300"),
        ("1E", "1E"),
        ("-10m", "-10m"),
        ("-0", "0"),
        ("0.1n", "1n"),
        ("16Ei", "9223372036854775807"),
    ],
)
def test_the_canonical_text_is_the_api_servers(text: str, written: str) -> None:
    assert str(parse_quantity(text)) == written


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        ".",
        "+",
        "1 ",
        " 1",
        "1kk",
        "1ki",
        "1KI",
        "--1",
        "1e",
        "e3",
        "1.2.3",
        "0x1",
        "1_0",
        "\u0661",
        "NaN",
        "1e101",
    ],
)
def test_what_is_no_quantity_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_quantity(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given_", [True, None, [], {}, "1" * 1000, 10**200, float("inf")])
def test_other_values_are_refused(given_: object) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(given_)


@given(st.text(max_size=12))
def test_no_text_does_worse_than_be_refused(text: str) -> None:
    with contextlib.suppress(QuantityError):
        parse_quantity(text)


def test_yaml_numbers_are_quantities() -> None:
    assert parse_quantity(2).value == 2
    assert parse_quantity(1.5) == parse_quantity("1500m")


def test_a_quantity_is_a_value() -> None:
    kibi = parse_quantity("1Ki")
    assert kibi == parse_quantity("1024")
    assert hash(kibi) == hash(parse_quantity("1024"))
    assert parse_quantity("100m") < parse_quantity("0.2") <= parse_quantity("200m")
    assert pickle.loads(pickle.dumps(kibi)) == copy.deepcopy(kibi) == kibi
    assert str(kibi + parse_quantity("1k")) == "2024"
    with pytest.raises(AttributeError):
        kibi.nanos = 1
