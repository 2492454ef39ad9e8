"""Texts of the pages: times, sizes, states and events."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from privsketch_studies.collector.chain import Event
from privsketch_studies.collector.kinds import phrase_of
from privsketch_studies.collector.studies import Study

TASK_NAMES = {
    "kmeans": "Clusters",
    "gaussian-mixture": "Gaussian mixture",
    "pca": "Principal components",
    "regression": "Regression",
    "summary": "Means and shares",
}
# By the state of a study: a tone of the style sheet, a word, and a sentence.
STATES = {
    "open": ("go", "Open", "The study takes sketches."),
    "closed": ("calm", "Closed", "No more sketches are taken; the total is final."),
    "enrolling": ("wait", "Enrolling", "Sites and tellers upload their cards."),
    "frozen": (
        "wait",
        "Waiting for tellers",
        "The study file is uploaded; tellers accept it next.",
    ),
    "tallied": ("go", "Tallied", "All tellers have tallied: the total is available."),
    "void": ("stop", "Void", "The study ended without a total."),
}
SEALED_STATES = {
    "open": ("go", "Open", "The study takes ballots."),
    "closed": ("wait", "Closed", "The list of ballots is closed; tellers tally it."),
}
VERDICTS = {"good": "go", "rough": "wait", "hopeless": "stop"}
KIND_NAMES = {
    "sketch": "Sketch",
    "card": "Card",
    "study": "Study file",
    "accept": "Acceptance",
    "ballot": "Ballot",
    "checked": "Checked ballots",
    "closed": "Closed list",
    "tally": "Tally",
    "void": "Void statement",
}
DONE = {
    "handed-in": "Your file is uploaded and stored on the collector's disk.",
    "duplicate": "The collector already has this file; nothing has changed.",
    "closed": "The study is closed. No more sketches are taken.",
    "aside": "The upload is set aside. Its member may upload another file.",
    "gave-roles": "The member now has these roles.",
    "took-roles": "The member no longer has a role in this study.",
    "revoked": "The member's token is revoked and no longer works.",
    "made": "The study is created. Add its members next.",
}


def state_of(study: Study, state: str) -> tuple[str, str, str]:
    """Return tone, word and sentence for the state of a study."""
    states = {**STATES, **SEALED_STATES} if study.is_sealed else STATES
    return states[state]


def time_text(at: int) -> Markup:
    """Return a time element, for people and for programs."""
    when = datetime.fromtimestamp(at / 1000, UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        when.strftime("%Y-%m-%dT%H:%M:%SZ"), when.strftime("%-d %b %Y, %H:%M")
    )


def size_text(n_bytes: int) -> str:
    """Return a size in bytes, kB or MB."""
    if n_bytes < 1000:
        return f"{n_bytes} bytes"
    if n_bytes < 1_000_000:
        return f"{n_bytes / 1000:.0f} kB"
    return f"{n_bytes / 1_000_000:.1f} MB"


def event_text(event: Event) -> str:
    """Return what an event says, without its subject."""
    facts: dict[str, Any] = event.facts
    roles = " and ".join(map(str, facts.get("roles", ())))
    if event.act == "uploaded":
        kind = str(facts.get("kind"))
        signed = ", signed" if facts.get("signer") else ""
        return f"uploaded {phrase_of(kind)} of {facts.get('whose')}{signed}"
    if event.act == "gave roles":
        return f"made {facts.get('member')} {roles}"
    if event.act == "took roles":
        return f"removed the role {roles} of {facts.get('member')}"
    if event.act == "set aside":
        return f"set an upload aside: {facts.get('because')}"
    if event.act == "made study":
        kind = "a sealed" if facts.get("sealed") else "an open"
        return f"created {kind} study, owned by {facts.get('owner')}"
    if event.act == "closed study":
        return "closed the study"
    return event.act
