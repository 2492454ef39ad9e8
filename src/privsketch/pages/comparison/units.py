"""Units that are mistaken for each other, and what a mistake does to the values of a column.

Whoever measures in another unit releases `factor * value + shift` where the others release `value`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class UnitMistake:
    """One unit in the place of another: `factor * value + shift`, and how to say it."""

    words: str
    factor: float
    shift: float = 0.0
    meant: str = ""

    def is_for(self, unit: str) -> bool:
        """Whether the mistaken unit is the one that a schema states."""
        return bool(unit) and unit.strip().lower() in _SYMBOLS.get(self.meant, ())


# (what is used, what is meant, factor, shift): values in the first are factor * second + shift.
_PAIRS = (
    ("pounds", "kilograms", 2.2046226, 0.0),
    ("stones", "kilograms", 0.1574730, 0.0),
    ("pounds", "stones", 14.0, 0.0),
    ("ounces", "grams", 0.0352740, 0.0),
    ("inches", "centimetres", 0.3937008, 0.0),
    ("inches", "metres", 39.370079, 0.0),
    ("feet", "centimetres", 0.0328084, 0.0),
    ("feet", "metres", 3.2808399, 0.0),
    ("inches", "feet", 12.0, 0.0),
    ("miles", "kilometres", 0.6213712, 0.0),
    ("acres", "hectares", 2.4710538, 0.0),
    ("US gallons", "litres", 0.2641720, 0.0),
    ("fluid ounces", "millilitres", 0.0338140, 0.0),
    ("degrees Fahrenheit", "degrees Celsius", 1.8, 32.0),
    ("kelvins", "degrees Celsius", 1.0, 273.15),
    ("millimetres of mercury", "kilopascals", 7.5006158, 0.0),
    ("kilocalories", "kilojoules", 0.2390057, 0.0),
    ("mg/dl of glucose", "mmol/l", 18.016, 0.0),
    ("mg/dl of cholesterol", "mmol/l", 38.67, 0.0),
    ("micromol/l of creatinine", "mg/dl", 88.42, 0.0),
    ("mmol/mol of HbA1c", "percent", 10.929, -23.5),
    ("minutes", "hours", 60.0, 0.0),
    ("seconds", "hours", 3600.0, 0.0),
    ("hours", "days", 24.0, 0.0),
    ("days", "weeks", 7.0, 0.0),
    ("months", "years", 12.0, 0.0),
    ("weeks", "years", 52.1775, 0.0),
    ("days", "years", 365.25, 0.0),
    ("degrees", "radians", 57.2957795, 0.0),
    ("tenths", "wholes", 10.0, 0.0),
    ("hundredths (percent, cm for m)", "wholes", 100.0, 0.0),
    ("thousandths (g for kg, mm for m)", "wholes", 1e3, 0.0),
    ("millionths", "wholes", 1e6, 0.0),
)


# How schemas write units that are meant.
_SYMBOLS = {
    "kilograms": ("kg", "kilogram", "kilograms"),
    "pounds": ("lb", "lbs", "pound", "pounds"),
    "centimetres": ("cm", "centimetre", "centimetres", "centimeter", "centimeters"),
    "metres": ("m", "metre", "metres", "meter", "meters"),
    "inches": ("in", "inch", "inches"),
    "feet": ("ft", "foot", "feet"),
    "kilometres": ("km", "kilometre", "kilometres", "kilometer", "kilometers"),
    "miles": ("mi", "mile", "miles"),
    "grams": ("g", "gram", "grams"),
    "degrees Celsius": ("c", "°c", "celsius"),
    "degrees Fahrenheit": ("f", "°f", "fahrenheit"),
    "kelvins": ("k", "kelvin"),
    "kilopascals": ("kpa",),
    "millimetres of mercury": ("mmhg",),
    "mmol/l": ("mmol/l",),
    "mg/dl": ("mg/dl",),
    "years": ("y", "a", "year", "years"),
    "months": ("month", "months"),
    "days": ("d", "day", "days"),
    "hours": ("h", "hour", "hours"),
    "minutes": ("min", "minute", "minutes"),
}


def _both_ways() -> Iterator[UnitMistake]:
    for used, meant, factor, shift in _PAIRS:
        yield UnitMistake(f"{used} instead of {meant}", factor, shift, meant)
        yield UnitMistake(f"{meant} instead of {used}", 1 / factor, -shift / factor, used)


MISTAKES: tuple[UnitMistake, ...] = tuple(_both_ways())
