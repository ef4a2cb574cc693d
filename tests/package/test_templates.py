"""The files that people outside of the gate meet: templates of issues and pull requests, conduct, pre-commit.

Nothing else reads them here, so the first to see a mistake would be a user who reports a bug.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
GITHUB = REPOSITORY / ".github"
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
PAGES = ("CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md", ".github/pull_request_template.md")
ELEMENTS = {"markdown", "textarea", "input", "dropdown", "checkboxes"}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_has_what_the_host_demands(path: Path) -> None:
    form = read(path)
    assert form.keys() == {"name", "description", "labels", "body"}
    fields = [element for element in form["body"] if element["type"] != "markdown"]
    names = [field["id"] for field in fields]
    assert len(set(names)) == len(names) > 0
    for element in form["body"]:
        assert element["type"] in ELEMENTS
        assert element["attributes"].get("label" if element in fields else "value")
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_there_is_a_form_for_each_concern() -> None:
    assert [path.stem for path in FORMS] == ["bug", "feature", "question"]


def test_a_bug_report_asks_for_the_build_the_check_and_the_versions() -> None:
    form = read(GITHUB / "ISSUE_TEMPLATE" / "bug.yml")
    asked = {field["id"]: field["attributes"] for field in form["body"] if "id" in field}
    assert "aioproduce.build_info()" in asked["build"]["description"]
    assert "aioproduce check --bootstrap-server" in asked["check"]["description"]
    assert {"versions", "settings", "program"} <= asked.keys()
    warning = form["body"][0]["attributes"]["value"]
    assert "SECURITY.md" in warning
    assert "passwords" in warning


def test_links_of_the_chooser_are_of_this_project() -> None:
    source = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["urls"]["Source"]
    config = read(GITHUB / "ISSUE_TEMPLATE" / "config.yml")
    assert config["contact_links"]
    for link in config["contact_links"]:
        assert link["url"].startswith(f"{source}/")
        assert link["name"]
        assert link["about"]
        if found := re.match(r".*/(?:tree|blob)/main/(.*)", link["url"]):
            assert (REPOSITORY / found[1]).exists()


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_to_files_and_headings(page: str) -> None:
    path = REPOSITORY / page
    for target, _, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(#([^)\s]+))?\)", path.read_text()):
        there = (path.parent / target).resolve() if target else path
        assert there.exists(), f"{page} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", there.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{page} links to {target}#{anchor}"


def test_hooks_run_what_lint_runs_from_our_own_environment() -> None:
    (repository,) = read(REPOSITORY / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    hooks = {hook["id"]: hook for hook in repository["hooks"]}
    assert hooks.keys() == {"ruff", "ruff-format", "codespell", "mypy"}
    for hook in hooks.values():
        assert hook["language"] == "system"
        assert hook["entry"].startswith(".venv/bin/python -m ")
    makefile = (REPOSITORY / "Makefile").read_text()
    for command in ("ruff check", "ruff format --check", "mypy"):
        assert f"$(PY) -m {command}" in makefile
        assert any(command in hook["entry"] for hook in hooks.values())


def test_there_are_pairs_of_words_for_whoever_writes() -> None:
    section = (REPOSITORY / "CONTRIBUTING.md").read_text().partition("\n## Words\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", section, re.MULTILINE)
    assert rows[0] == ("not", "but")
    pairs = rows[1:]
    assert len(pairs) >= 10
    assert all(before != after for before, after in pairs)
