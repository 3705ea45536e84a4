"""Tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any


def table(caption: str, head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table; every text in it is escaped."""
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = (f"<tr>{''.join(f'<td>{escape(words(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{cells}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


def words(value: Any) -> str:
    """A value in few words."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        if isinstance(value.get("kind"), str):
            return f"{value['kind']} {words(value.get('params', {}))}".strip()
        return ", ".join(f"{key} {words(part)}" for key, part in value.items() if part is not None)
    if isinstance(value, (list, tuple)):
        if len(value) > 8:
            return f"{len(value)} values"
        return " ".join(words(part) for part in value)
    return str(value)
