"""Every sentence that users read, as one text: rules that hold for all of them."""

import ast
from pathlib import Path

import pytest

from hack.pages.messages import MODULES, PAGE, page, rules, sentences
from inventory.words.catalog import Kind, Place, Sentence

AGENT, CLI = PAGE.parents[1] / "agent", PAGE.parents[1] / "cli"
MOST_WORDS = 32
BANNED = (
    "please",
    "oops",
    "invalid",
    "illegal",
    "failed to",
    "unable to",
    "cannot be null",
    "kindly",
    "simply",
    "e.g.",
)
"""Words that say nothing, or that no field's text has."""
STEPS = (
    "Create",
    "Use",
    "Correct",
    "Read",
    "Set",
    "Remove",
    "Open",
    "Keep",
    "See",
    "Take",
    "Submit",
    "Its own",
    "End",
    "Reset",
    "To do",
    "Install",
    "Start",
)
"""How a next step begins."""


def named(sentence: Sentence) -> str:
    return f"{sentence.module}.{sentence.name}"


def test_the_page_has_every_sentence_as_it_is() -> None:
    assert PAGE.read_text() == page(), f"{PAGE.name} is stale: run .venv/bin/python -m hack.pages.messages"


@pytest.mark.parametrize("sentence", sentences(), ids=named)
def test_a_sentence_is_short_plain_and_begins_with_a_capital(sentence: Sentence) -> None:
    text = sentence.text
    assert len(text.split()) <= MOST_WORDS
    assert text == " ".join(text.split())
    assert not text.endswith((".", ":", ","))
    assert not [word for word in BANNED if word in text.lower()]
    # A command's begins with the option or with what was found, a claim's and a node's with a name.
    begins = sentence.kind is Kind.PART or sentence.place in (Place.COMMANDS, Place.CLAIM_EVENTS, Place.DOCTOR)
    assert begins or text[0].isupper()


@pytest.mark.parametrize("sentence", [each for each in sentences() if each.kind is Kind.REFUSAL], ids=named)
def test_a_refusal_ends_with_the_next_step_or_with_what_is_expected(sentence: Sentence) -> None:
    last = sentence.text.rpartition(". ")[2] if ". " in sentence.text else ""
    assert last.startswith(STEPS) or "expected" in sentence.text, sentence.text


def test_no_two_sentences_say_the_same_otherwise() -> None:
    """One thing is said in one way wherever it is read."""
    texts = [each.text for each in sentences()]
    assert len(texts) == len(set(texts))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_function_of_the_modules_is_in_the_catalog(module: object) -> None:
    tree = ast.parse(Path(str(module.__file__)).read_text())  # type: ignore[attr-defined]
    written = {each.name for each in tree.body if isinstance(each, ast.FunctionDef) and each.name[0] != "_"}
    name = module.__name__  # type: ignore[attr-defined]
    assert written == {each.name for each in sentences() if each.module == name}


def test_each_rule_about_a_foreign_kind_says_what_is_expected() -> None:
    found = dict(rules())
    assert min(map(len, found.values())) > 0
    assert all("expected" in said for told in found.values() for said in told)


TELLS = ("problem", "tell", "told", "say", "report", "event")


@pytest.mark.parametrize("file", sorted(AGENT.rglob("*.py")), ids=lambda file: str(file.relative_to(AGENT)))
def test_no_event_of_the_agent_is_made_up_in_place(file: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
    telling = [call for call in calls if ast.unparse(call.func).rpartition(".")[2].lstrip("_") in TELLS]
    written = {call.lineno for call in telling for node in call.args if isinstance(node, ast.JoinedStr)}
    assert written == set()


ERRORS = ("ClickException", "UsageError", "BadParameter", "WrongInputError", "InputError", "RefusedError", "fail")


@pytest.mark.parametrize("file", sorted(CLI.rglob("*.py")), ids=lambda file: str(file.relative_to(CLI)))
def test_no_command_makes_up_what_it_refuses_by_itself(file: Path) -> None:
    """The texts of servers and of files' readers are handed on."""
    calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call) and node.args]
    refusing = [call for call in calls if ast.unparse(call.func).rpartition(".")[2] in ERRORS]
    assert [call.lineno for call in refusing if isinstance(call.args[0], ast.Constant | ast.JoinedStr)] == []
