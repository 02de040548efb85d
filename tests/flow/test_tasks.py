"""Input lines become tasks: parsed, named, filled in."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import UsageError
from muster.flow.run.tasks import Task, digest, fill, items, tasks


def test_a_line_is_an_item_and_an_object_has_fields() -> None:
    text = 'one\n\n  two words\r\n{"file": "a.py", "n": 3, "ok": true}\n{not json}\n[1, 2]\n'
    assert items(text) == [
        {"item": "one"},
        {"item": "  two words"},
        {"item": '{"file": "a.py", "n": 3, "ok": true}', "file": "a.py", "n": "3", "ok": "true"},
        {"item": "{not json}"},
        {"item": "[1, 2]"},
    ]


def test_an_object_may_name_its_item() -> None:
    (fields,) = items('{"item": "x", "why": "y"}')
    assert fill("{item} for {why}", fields, "p") == "x for y"


def test_a_field_that_is_no_name_is_refused() -> None:
    with pytest.raises(UsageError, match="line 2: 'a b' is not a valid field name"):
        items('x\n{"a b": 1}')


def test_slots_are_filled_in_one_pass() -> None:
    assert fill("{a} {{b}} {b}", {"a": "{b}", "b": "x"}, "p") == "{b} {b} x"
    assert fill("awk '{ print $1 }' {a}", {"a": "f"}, "p") == "awk '{ print $1 }' f"


def test_an_unknown_slot_names_what_there_is() -> None:
    with pytest.raises(UsageError, match="the prompt has the slot {fiel}") as error:
        tasks(items('{"file": "a"}'), "look at {fiel}", [])
    assert "file, item" in error.value.hint


def test_a_missing_slot_names_the_line_of_the_item() -> None:
    found = items('{"file": "a"}\n\n\n{"fiel": "b"}\n')
    with pytest.raises(UsageError, match=r"the prompt has the slot \{file\}, and the item of line 4 has no such field"):
        tasks(found, "look at {file}", [])
    with pytest.raises(UsageError, match="the argument '-x{file}' has .* line 4"):
        tasks(found, "", ["{item}", "-x{file}"])


@pytest.mark.parametrize("line", ["a\0b", "a\0", '{"file": "a\\u0000b"}'])
def test_a_nul_is_refused_and_never_dropped(line: str) -> None:
    with pytest.raises(UsageError, match="line 2 has a NUL character") as error:
        items(f"one\n{line}\n")
    assert "one item a line" in error.value.hint and "tr '\\0' '\\n'" in error.value.hint


def test_an_item_that_no_process_could_be_given_is_refused() -> None:
    assert items("ä" * 60_000) == [{"item": "ä" * 60_000}]
    with pytest.raises(UsageError, match="the item of line 2 has 120001 bytes, and no more than 120000") as error:
        items("x\n" + "ä" * 60_000 + "a")
    assert "file" in error.value.hint
    (fields,) = items(json.dumps({"item": "x", "long": "y" * 200_000}))
    assert tasks([fields], "{long}", [])[0].item == "x", "a prompt may be longer"
    with pytest.raises(UsageError, match="an argument of line 1 has 200001 bytes"):
        tasks([fields], "", ["={long}"])


def test_a_byte_order_mark_is_no_part_of_the_first_item() -> None:
    assert items("\ufeffone\n\ufefftwo\n") == [{"item": "one"}, {"item": "\ufefftwo"}]
    assert items('\ufeff{"file": "a"}')[0]["file"] == "a"


@given(st.text(min_size=1))
def test_any_item_has_a_folder_of_its_own_and_comes_back(text: str) -> None:
    made = tasks([{"item": text}, {"item": text}], "Look at {item}", ["{item}"])
    assert len({task.id for task in made}) == 2
    for task in made:
        assert "/" not in task.id and task.id[0].isdigit() and len(task.id) < 60
        assert task.prompt == f"Look at {text}" and task.args == (text,)
        assert Task.from_json(json.loads(json.dumps(task.to_json()))) == task


def test_equal_input_has_an_equal_digest() -> None:
    assert digest(["claude", "p", ["a"]]) == digest(["claude", "p", ["a"]]) != digest(["claude", "p", ["b"]])
