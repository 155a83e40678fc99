"""Units of measurement in answers: whether two are of the same kind, and how many of one are one of the other."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

# Each by its names (the first is the kind's own where nothing else is) with the size in the kind's base unit.
_LENGTH = {
    "nm nanometer nanometre": "1e-9",
    "µm μm micron micrometer micrometre": "1e-6",
    "Å angstrom \\AA": "1e-10",
    "mm millimeter millimetre": "1e-3",
    "cm centimeter centimetre": "1e-2",
    "m meter metre": "1",
    "km kilometer kilometre": "1000",
    "in inch inche": "0.0254",
    "ft foot feet": "0.3048",
    "yd yard": "0.9144",
    "mi mile": "1609.344",
}
_MASS = {
    "mg milligram": "1e-6",
    "g gram": "1e-3",
    "kg kilogram": "1",
    "oz ounce": "0.028349523125",
    "lb pound": "0.45359237",
}
_TIME = {
    "ms millisecond": "1e-3",
    "s sec second": "1",
    "min minute": "60",
    "h hr hour": "3600",
    "day": "86400",
    "week": "604800",
}
_MONEY = {"cent ¢ c\\": "0.01", "$ dollar USD": "1"}
_ENERGY = {"J joule": "1", "kJ kilojoule": "1000"}
_KINDS = {"length": _LENGTH, "mass": _MASS, "time": _TIME, "money": _MONEY, "energy": _ENERGY}
_ALONE = (
    "% percent",
    "° degree",
    "rad radian",
    "K kelvin",
    "°C celsius",
    "°F fahrenheit",
    "yr year",
    "month",
    "Hz hertz",
    "N newton",
    "W watt",
    "Pa pascal",
    "eV",
    "V volt",
    "mol mole",
    "cal calorie",
    "kcal kilocalorie",
    "€ euro",
    "£",
)
_VOLUME = {"ml mL milliliter millilitre": "1e-6", "l L liter litre": "1e-3"}

_BASES: dict[str, tuple[dict[str, int], Fraction]] = {
    name: ({kind: 1}, Fraction(size))
    for kind, units in _KINDS.items()
    for names, size in units.items()
    for name in names.split()
}
_BASES |= {name: ({"length": 3}, Fraction(size)) for names, size in _VOLUME.items() for name in names.split()}
_BASES |= {name: ({names.split()[0]: 1}, Fraction(1)) for names in _ALONE for name in names.split()}
_BASES["mph"] = ({"length": 1, "time": -1}, Fraction("1609.344") / 3600)

_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_FACTOR = re.compile(r"(?P<name>[^\s^*/·{}\d]+)(?:\^?\{?(?P<power>-?\d)\}?)?")


@dataclass(frozen=True)
class Unit:
    """What is measured, as powers of base kinds, and the unit's size in base units."""

    kinds: tuple[tuple[str, int], ...]
    size: Fraction


def read_unit(text: str) -> Unit | None:
    """The unit that ``text`` names, or ``None`` where it names something else, as apples.

    >>> read_unit("km/h") == read_unit("kilometers per hour"), read_unit("apples")
    (True, None)
    """
    text = text.replace("²", "^2").replace("³", "^3").replace(".", " ").replace("\\cdot", " ")
    text = re.sub(r"(\w+?)\s+squared\b", r"\1^2", text)
    text = re.sub(r"(\w+?)\s+cubed\b", r"\1^3", text)
    over, *under = re.split(r"/|\bper\b", text)
    kinds: dict[str, int] = {}
    size = Fraction(1)
    for part, sign in [(over, 1), *((each, -1) for each in under)]:
        power = 1
        found = False
        for word in _FACTOR.finditer(part):
            name = word["name"]
            if name.lower() in _POWERS:
                power = _POWERS[name.lower()]
                continue
            base = _base(name)
            if base is None:
                return None
            exponent = sign * power * int(word["power"] or 1)
            for kind, count in base[0].items():
                kinds[kind] = kinds.get(kind, 0) + count * exponent
            size *= base[1] ** exponent
            power, found = 1, True
        if not found:
            return None
    return Unit(tuple(sorted((kind, count) for kind, count in kinds.items() if count)), size)


def _base(name: str) -> tuple[dict[str, int], Fraction] | None:
    for spelling in (name, name.lower()):
        for form in (spelling, spelling.removesuffix("s"), spelling.removesuffix("es")):
            if form in _BASES:
                return _BASES[form]
    return None
