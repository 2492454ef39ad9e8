"""What pages say: times, sizes, states and events in words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from privsketch_studies.collector.chain import Event
from privsketch_studies.collector.studies import Study

TASK_NAMES = {
    "kmeans": "Clusters",
    "gaussian-mixture": "Gaussian mixture",
    "pca": "Principal components",
}
# How far a study is: a tone of the style sheet, a word, a sentence.
STATES = {
    "open": ("go", "Open", "The study takes sketches."),
    "closed": ("calm", "Closed", "No more sketches are taken; the total is final."),
    "enrolling": ("wait", "Enrolling", "Sites and tellers hand in their cards."),
    "frozen": ("wait", "Waiting for tellers", "The study file is there; tellers accept it."),
    "tallied": ("go", "Tallied", "All tellers have tallied: the total is there."),
    "void": ("stop", "Void", "The study ended without a total."),
}
SEALED_STATES = {
    "open": ("go", "Open", "The study takes ballots."),
    "closed": ("wait", "Closed", "The list of ballots is closed; tellers tally it."),
}
VERDICTS = {"good": "go", "rough": "wait", "hopeless": "stop"}
KINDS = {
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
    "handed-in": "Kept. What you handed in is on the collector's disk.",
    "there": "These bytes were there already; nothing was changed.",
    "closed": "The study is closed. No more sketches are taken.",
    "aside": "Set aside. Its member may hand in another.",
    "gave-roles": "The member has these roles now.",
    "took-roles": "The member has no role in this study any more.",
    "revoked": "Revoked: the member's token is worth nothing any more.",
    "made": "The study is made. Add its members next.",
}


def state_of(study: Study, state: str) -> tuple[str, str, str]:
    """Tone, word and sentence of how far a study is."""
    found = SEALED_STATES.get(state) if study.is_sealed else None
    return found or STATES[state]


def time_text(at: int) -> Markup:
    """A time, for people and for machines."""
    when = datetime.fromtimestamp(at / 1000, UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        when.strftime("%Y-%m-%dT%H:%M:%SZ"), when.strftime("%-d %b %Y, %H:%M")
    )


def size_text(n_bytes: int) -> str:
    """A size in bytes, short."""
    if n_bytes < 1000:
        return f"{n_bytes} bytes"
    if n_bytes < 1_000_000:
        return f"{n_bytes / 1000:.0f} kB"
    return f"{n_bytes / 1_000_000:.1f} MB"


def event_text(event: Event) -> str:
    """What happened, in a line."""
    facts: dict[str, Any] = event.facts
    roles = " and ".join(map(str, facts.get("roles", ())))
    if event.act == "uploaded":
        kind = KINDS.get(str(facts.get("kind")), str(facts.get("kind"))).lower()
        signed = ", signed" if facts.get("signer") else ""
        return f"handed in a {kind} of {facts.get('whose')}{signed}"
    if event.act == "gave roles":
        return f"made {facts.get('member')} {roles}"
    if event.act == "took roles":
        return f"took the role {roles} from {facts.get('member')}"
    if event.act == "set aside":
        return f"set an upload aside: {facts.get('because')}"
    if event.act == "made study":
        kind = "a sealed" if facts.get("sealed") else "an open"
        return f"made the study, {kind} one, owned by {facts.get('owner')}"
    if event.act == "closed study":
        return "closed the study"
    return event.act


def several(number: int, word: str) -> str:
    """A number of things."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
