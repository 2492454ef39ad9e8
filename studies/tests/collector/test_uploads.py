"""Uploads: checked in full, kept once, added up exactly."""

import base64
import itertools
import threading
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import select, update

import privsketch as ps
from privsketch import FileError
from privsketch_studies import CollectorError
from privsketch_studies.collector import (
    chains,
    claims,
    close_study,
    events_of,
    find_member,
    renew_token,
    revoke_token,
    roles,
    submit,
    verify_store,
)
from privsketch_studies.collector.store import events, members, studies, uploads
from studies.tests.server import DESIGN, sketch_of
from tests import seams
from tests.chance import exact_answers


def test_an_upload_is_acknowledged_once_and_counts_once(world):
    data = sketch_of("north").to_bytes()
    first, again = world.push("north", data), world.push("north", data)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == {**again.json(), "is_new": True}
    chain = events_of(world.store, "heart")
    told = chain[first.json()["event"] - 1]
    assert (told.act, told.digest) == ("uploaded", first.json()["event_digest"])
    other = world.push("north", sketch_of("north").to_bytes())
    assert other.status_code == 409
    assert world.total().to_bytes() == data


def test_the_total_is_the_merge_of_the_files(world):
    assert world.ask("olga", "GET", "/studies/heart/total").status_code == 404
    parts = [sketch_of("a"), sketch_of("b", n_records=70)]
    for who, part in zip(("north", "south"), parts, strict=True):
        assert world.push(who, part.to_bytes()).status_code == 201
    assert world.total("north").to_bytes() == ps.merge(parts).to_bytes()
    assert np.array_equal(world.total().values, parts[0].values + parts[1].values)


def other_budget(sketch):
    design = replace(sketch.design, budget=ps.Budget(2.0, 1e-6))
    return sketch_of("north", design).to_bytes()


def bent(sketch):
    return replace(sketch, values=sketch.values * 1000).to_bytes()


def renamed(sketch):
    receipt = replace(sketch.receipt, source="another")
    return replace(sketch, sources=("another",), ids=("f" * 32,), receipt=receipt).to_bytes()


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda s: s.to_bytes()[:-1], 422),
        (lambda s: b"\x89privsk\n", 422),
        (lambda s: b"", 415),
        (lambda s: b"PK\x03\x04", 415),
        (lambda s: DESIGN.to_bytes(), 415),
        (other_budget, 422),
        (bent, 422),
        (lambda s: replace(s, weights=(2,)).to_bytes(), 422),
        (lambda s: ps.merge([s, sketch_of("b")]).to_bytes(), 422),
        (lambda s: s.to_bytes() + bytes(100_000), 413),
    ],
)
def test_what_is_no_sketch_of_the_study_is_refused(world, change, status):
    answer = world.push("north", change(sketch_of("north")))
    assert answer.status_code == status, answer.text
    assert world.ask("olga", "GET", "/studies/heart/uploads").json() == []


def test_sketches_without_noise_are_refused(world):
    with exact_answers():
        data = sketch_of("north").to_bytes()
    assert world.push("north", data).status_code == 422


def test_nobody_takes_the_place_of_another(world):
    """A copy, or the name of somebody else, would stop the merge of all."""
    mine = sketch_of("first")
    assert world.push("north", mine.to_bytes()).status_code == 201
    assert world.push("south", mine.to_bytes()).status_code == 409
    assert world.push("south", renamed(mine)).status_code == 409
    for name in ("first", "FIRST", "North"):
        assert world.push("south", sketch_of(name).to_bytes()).status_code == 409
    assert world.push("south", sketch_of("south").to_bytes()).status_code == 201
    assert len(world.total().ids) == 2


def signed(key, data):
    """The header of a signature."""
    text = base64.b64encode(key.signature(data, "sketch").to_bytes()).decode()
    return {"Privsketch-Signature": text}


def test_signatures_are_needed_of_those_whose_key_is_known(world):
    key, other = ps.Key.generate("east"), ps.Key.generate("east")
    world.add("east", "site", key=key.public)
    data = sketch_of("east").to_bytes()

    assert world.push("east", data).status_code == 422
    assert world.push("east", data, headers=signed(other, data)).status_code == 422
    assert world.push("east", data, headers=signed(key, b"else")).status_code == 422
    assert world.push("east", data, headers={"Privsketch-Signature": "a=b"}).status_code == 422
    found = world.push("east", data, headers=signed(key, data))
    assert found.status_code == 201
    back = world.ask("olga", "GET", f"/studies/heart/uploads/{found.json()['digest']}")
    assert back.content == data
    assert back.headers["Privsketch-Signature"] == signed(key, data)["Privsketch-Signature"]


def test_a_closed_study_takes_nothing_new(world):
    data = sketch_of("north").to_bytes()
    assert world.push("north", data).status_code == 201
    assert world.ask("north", "POST", "/studies/heart/close").status_code == 403
    assert world.ask("olga", "POST", "/studies/heart/close").json()["state"] == "closed"
    assert world.push("south", sketch_of("south").to_bytes()).status_code == 423
    assert world.push("north", data).status_code == 200  # who did not hear the answer asks again


def test_an_owner_sets_a_sketch_aside_and_another_is_taken(world):
    first = world.push("north", sketch_of("north").to_bytes()).json()["digest"]
    path = f"/studies/heart/uploads/{first}/set-aside"
    assert world.ask("north", "POST", path, json={"because": "units"}).status_code == 403
    assert world.ask("olga", "POST", path, json={"because": "units"}).status_code == 204
    assert world.ask("olga", "POST", path, json={"because": "units"}).status_code == 404
    better = sketch_of("north", n_records=60).to_bytes()
    assert world.push("north", better).status_code == 201
    assert world.total().to_bytes() == better
    listed = world.ask("olga", "GET", "/studies/heart/uploads?aside=true").json()
    assert [one["aside_because"] for one in listed] == ["units", None]
    verify_store(world.store)


def test_sketches_of_others_are_for_owners_and_readers(world):
    world.add("rita", "reader")
    digest = world.push("north", sketch_of("north").to_bytes()).json()["digest"]
    path = f"/studies/heart/uploads/{digest}"
    found = {who: world.ask(who, "GET", path).status_code for who in world.tokens}
    assert found == {"olga": 200, "north": 200, "south": 403, "rita": 200}
    assert world.push("rita", sketch_of("rita").to_bytes()).status_code == 403


def test_many_at_once_leave_one(world):
    """Eight threads hand in two sketches of one site, again and again: one of them is there."""
    choices = [sketch_of("north").to_bytes() for _ in range(2)]
    member = find_member(world.store, "north")
    seen, others = [], []

    def work(number):
        for turn in range(4):
            try:
                kept = submit(world.store, member, "heart", choices[(number + turn) % 2])
                seen.append((kept.digest, kept.is_new))
            except CollectorError as error:
                others.append(error.refusal)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({digest for digest, _ in seen}) == 1
    assert [is_new for _, is_new in seen].count(True) == 1
    assert (len(seen), others) == (16, ["conflict"] * 16)
    assert verify_store(world.store).n_uploads == 1


def test_a_member_revoked_on_the_way_is_refused(world):
    member = find_member(world.store, "north")
    revoke_token(world.store, "north")
    with pytest.raises(ps.PrivsketchError, match="token"):
        submit(world.store, member, "heart", sketch_of("north").to_bytes())


def test_a_token_renewed_on_the_way_is_refused(world):
    """Who stole one cannot begin an upload, be slow, and end it when the token is worth nothing."""
    thief = find_member(world.store, "north")
    renew_token(world.store, "north")
    with pytest.raises(ps.PrivsketchError, match="token"):
        submit(world.store, thief, "heart", sketch_of("north").to_bytes())
    again = find_member(world.store, "north")
    assert submit(world.store, again, "heart", sketch_of("north").to_bytes()).is_new


def test_names_that_read_as_long_ones_fit(world):
    """One letter may read as eighteen."""
    assert world.push("north", sketch_of("\ufdfa" * 200).to_bytes()).status_code == 201
    assert world.push("south", sketch_of("\ufdfa" * 200).to_bytes()).status_code == 409
    assert world.ask("olga", "DELETE", "/studies/heart/members/a%00b").status_code == 404


# ---------------------------------------------------------------- events


def test_clocks_that_go_back_do_not_bend_the_chain(world, monkeypatch):
    world.push("north", sketch_of("north").to_bytes())
    seams.set(monkeypatch, "events.time.time_ns", lambda: 10**15)
    close_study(world.store, "heart")
    times = [event.at for event in events_of(world.store, "heart")]
    assert times == sorted(times)
    verify_store(world.store)


@pytest.mark.parametrize(
    "damage",
    [
        update(events).where(events.c.number == 2).values(facts="{}"),
        update(events).where(events.c.number == 2).values(at=events.c.at + 1),
        update(events).where(events.c.act == "uploaded").values(member="south"),
        events.delete().where(events.c.number == 3, events.c.study == "heart"),
        update(chains).where(chains.c.study == "heart").values(n_events=3),
        *(
            update(uploads).where(uploads.c.member == "east").values(**value)
            for value in (
                {"content": b"else"},
                {"number": 1},
                {"member": "south"},
                {"kind": "tally"},
                {"whose": "south"},
                {"n_bytes": 1},
                {"at": 1},
                {"signer": "0" * 32},
                {"signature": b"else"},
                {"signature": None},
                {"aside_at": 1, "aside_because": "else"},
            )
        ),
        claims.delete(),
        roles.insert().values(study="heart", member="north", role="owner"),
        roles.delete().where(roles.c.member == "south"),
        *(
            update(studies).values(**value)
            for value in (
                {"title": "else"},
                {"design": sketch_of("x").design.to_bytes().replace(b'"dim": 2', b'"dim": 3')},
                {"design": replace(DESIGN, n_components=3).to_bytes()},
                {"fingerprint": "0" * 64},
                {"closed_at": 5},
                {"last_day": "2020-01-01"},
                {"is_sealed": True},
            )
        ),
        update(members).where(members.c.name == "north").values(makes_studies=True),
        update(members)
        .where(members.c.name == "east")
        .values(key=ps.Key.generate("x").public.to_bytes()),
        update(members).where(members.c.name == "south").values(revoked_at=None),
        update(members).where(members.c.name == "south").values(token_hash="0" * 64),
        update(members).where(members.c.name == "north").values(made_by="olga"),
        members.insert().values(name="eve", alike="eve", makes_studies=True, made_at=0),
    ],
    ids=itertools.count(),
)
def test_what_was_altered_shows(world, damage):
    key = ps.Key.generate("east")
    world.add("east", "site", key=key.public)
    data = sketch_of("east").to_bytes()
    assert world.push("east", data, headers=signed(key, data)).status_code == 201
    revoke_token(world.store, "south")
    assert verify_store(world.store).n_events == len(
        [1 for study in ("", "heart") for _ in events_of(world.store, study)]
    )
    with world.store.writing() as connection:
        assert connection.execute(damage).rowcount != 0
    with pytest.raises(FileError):
        verify_store(world.store)


def test_nothing_of_a_token_is_kept(world):
    with world.store.reading() as connection:
        told = " ".join(connection.execute(select(events.c.facts)).scalars())
    for token in world.tokens.values():
        assert token not in told
    assert world.ask("north", "GET", "/me").json()["roles"] == {"heart": ["site"]}
