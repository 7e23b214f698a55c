"""Terms and fates as JSON, for exports: what is as nearly all jobs have it is left out.

Texts are written as names are (`wire.texts.text`), so that they may be any bytes.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from disqued.core.model.fate import NO_FATE, Fate, Word
from disqued.core.model.terms import NO_TERMS, Terms
from disqued.wire.texts import text

_USUAL_TERMS: Final = NO_TERMS._asdict()
_USUAL_FATE: Final = NO_FATE._asdict()


def terms_as_json(terms: Terms) -> str | None:
    """Write terms; None for a job without any."""
    values = _but_for(terms._asdict(), _USUAL_TERMS)
    if "headers" in values:
        values["headers"] = [[text(name), text(value)] for name, value in terms.headers]
    if "group" in values:
        values["group"] = text(terms.group)
    return _json(values)


def fate_as_json(fate: Fate) -> str | None:
    """Write a fate; None for a job of which nothing became yet."""
    values = _but_for(fate._asdict(), _USUAL_FATE)
    if "failures" in values:
        values["failures"] = [
            {"at": one.at, "node": text(one.node_id), "who": text(one.who), "reason": text(one.reason)}
            for one in fate.failures
        ]
    for name, word in (("progress", fate.progress), ("result", fate.result)):
        if word is not None:
            values[name] = _word(word)
    return _json(values)


def _word(word: Word) -> dict[str, Any]:
    return {"at": word.at, "node": text(word.node_id), "value": text(word.value)}


def _but_for(values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value != usual[name]}


def _json(values: Mapping[str, Any]) -> str | None:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")) if values else None
