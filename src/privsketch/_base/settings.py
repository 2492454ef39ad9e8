"""Settings of a function: its keyword parameters, as names with types and defaults.

Methods and decoders, those of other packages too, declare their settings by their signatures.
People state them as values in Python, and as text on the command line.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from inspect import Parameter, Signature, signature
from numbers import Integral, Real
from types import NoneType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from privsketch._base.errors import ParameterError


@dataclass(frozen=True)
class Setting:
    """One setting: a keyword parameter, or a field of one whose type is a dataclass.

    `parameter` is the name of the parameter, and `group` the dataclass if there is one.
    """

    name: str
    hint: Any
    parameter: str
    group: type | None = None

    def parsed(self, text: str) -> Any:
        """Return the value that a text stands for, by the type of the setting."""
        words = [word for kind in _kinds(self.hint) for word in _words(kind)]
        if text in words:
            return text
        for kind in (int, float):
            if kind in _kinds(self.hint):
                try:
                    return kind(text)
                except ValueError:
                    continue
        if bool in _kinds(self.hint) and text in ("true", "false"):
            return text == "true"
        if not {str, Any} & set(_kinds(self.hint)):
            raise ParameterError(self.name, text, f"expected {self.expected}")
        return text

    def checked(self, value: Any) -> Any:
        """Return a value that has the type of the setting, or raise a ParameterError.

        Words of a literal type are left to the function, whose error says more, and so are types
        that a text cannot state.
        """
        kinds = _kinds(self.hint)
        is_known = all(kind in _TYPES or kind is NoneType or _words(kind) for kind in kinds)
        if not is_known or any(_is_of(kind, value) for kind in kinds):
            return value
        raise ParameterError(self.name, value, f"expected {self.expected}")

    @property
    def expected(self) -> str:
        """Description of the values that the setting takes."""
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        kinds = [names[kind] for kind in _kinds(self.hint) if kind in names]
        words = [word for kind in _kinds(self.hint) for word in _words(kind)]
        return " or ".join([*kinds, *words]) or "a text"


_TYPES: dict[Any, tuple[type, ...]] = {
    int: (Integral,),
    float: (Real,),
    bool: (bool, np.bool_),
    str: (str,),
}


def _is_of(kind: Any, value: Any) -> bool:
    """Return whether a value has a type; words of literal types are texts, or truth values."""
    if kind is NoneType:
        return value is None
    if kind not in _TYPES:
        return isinstance(value, str) or any(type(value) is type(word) for word in _words(kind))
    if kind is not bool and isinstance(value, _TYPES[bool]):
        return False
    return isinstance(value, _TYPES[kind])


def signature_of(function: Callable[..., Any], what: str) -> Signature:
    """Return the parameters of a function of somebody else, or raise a ParameterError."""
    try:
        return signature(function)
    except (TypeError, ValueError):
        raise ParameterError(
            f"{what}: its parameters cannot be read; wrap it in a function of Python"
        ) from None


def require_call(
    function: Callable[..., Any], what: str, *positional: str, keyword: Iterable[str] = ()
) -> None:
    """Raise a ParameterError unless a function takes these parameters and needs no others."""
    names = tuple(keyword)
    try:
        signature_of(function, what).bind(*positional, **dict.fromkeys(names))
    except TypeError:
        form = ", ".join([*positional, *(["*", *names] if names else [])])
        raise ParameterError(f"{what}: expected a function of ({form})") from None


def settings_of(function: Callable[..., Any], without: Iterable[str] = ()) -> dict[str, Setting]:
    """Return the settings of a function by name: keyword-only parameters with a default.

    A parameter whose type is a dataclass with defaults counts as its fields; other dataclasses are
    no settings of people.
    """
    try:
        hints = get_type_hints(getattr(function, "func", function))
    except Exception:  # annotations of others may name what is not there
        hints = {}
    settings: dict[str, Setting] = {}
    for name, parameter in signature_of(function, "method or decoder").parameters.items():
        is_setting = parameter.kind is Parameter.KEYWORD_ONLY and name not in without
        if not is_setting or parameter.default is Parameter.empty:
            continue
        hint = hints.get(name, Any)
        groups = [k for k in _kinds(hint) if isinstance(k, type) and is_dataclass(k)]
        group = groups[0] if groups else None
        if group is None:
            settings[name] = Setting(name, hint, name)
        elif all((f.default, f.default_factory) != (MISSING, MISSING) for f in fields(group)):
            types_of = get_type_hints(group)
            for part in fields(group):
                settings[part.name] = Setting(part.name, types_of[part.name], name, group)
    return settings


def keywords(
    settings: Mapping[str, Setting], given: Mapping[str, Any], what: str
) -> dict[str, Any]:
    """Return the keyword parameters for settings that are given.

    Names that are no settings, and values of other types, are refused.
    """
    if not isinstance(given, Mapping):
        raise ParameterError("options", given, f"expected a mapping of options of {what}")
    unknown = [name for name in given if name not in settings]
    if unknown:
        known = ", ".join(settings) or "none"
        raise ParameterError(f"option {unknown[0]!r} of {what}: its options are: {known}")
    values: dict[str, Any] = {}
    grouped: dict[str, tuple[type, dict[str, Any]]] = {}
    for name, value in given.items():
        setting, value = settings[name], settings[name].checked(value)
        if setting.group is None:
            values[setting.parameter] = value
        else:
            grouped.setdefault(setting.parameter, (setting.group, {}))[1][name] = value
    return values | {name: group(**parts) for name, (group, parts) in grouped.items()}


def parsed_settings(
    settings: Mapping[str, Setting], texts: Iterable[str], what: str
) -> dict[str, Any]:
    """Return the values of texts like "n_rounds=5"; refuse names that are no settings."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ParameterError(f"option {text!r}: expected a name and a value, like n_rounds=5")
        if name in values:
            raise ParameterError(f"option {name!r} is given twice")
        if name not in settings:
            keywords(settings, {name: value}, what)  # raises the error that lists them
        values[name] = settings[name].parsed(value)
    return values


def _kinds(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the type itself."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _words(kind: Any) -> tuple[str, ...]:
    """Return the words of a literal type."""
    return get_args(kind) if get_origin(kind) is Literal else ()
