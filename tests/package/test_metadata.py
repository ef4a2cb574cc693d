"""What an index shows of a release: links that lead somewhere, and claims that were run.

1. The text for an index has no relative link, since an index has no other file. Each link to our own repository
   names a file that is there.
2. Versions and systems of the classifiers are those that CI must pass on (`.github/workflows/ci.yml`). A job that
   may fail (`continue-on-error`) proves nothing.
"""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
SYSTEMS = {
    "ubuntu": "Operating System :: POSIX :: Linux",
    "macos": "Operating System :: MacOS",
    "windows": "Operating System :: Microsoft :: Windows",
}


def index_readme(text: str) -> str:
    made = runpy.run_path(str(REPOSITORY / "setup.py"))["index_readme"](text, PROJECT)
    assert isinstance(made, str)
    return made


def test_each_form_of_a_link_becomes_absolute() -> None:
    at = f"{PROJECT['urls']['Source']}/%s/v{PROJECT['version']}/"
    blob, raw = at % "blob", at % "raw"

    for link, expected in {
        "[a](docs/a.md)": f"[a]({blob}docs/a.md)",
        "[a](docs/a.md#b)": f"[a]({blob}docs/a.md#b)",
        "[a](#b)": f"[a]({blob}README.md#b)",
        "![a](docs/b.svg)": f"![a]({raw}docs/b.svg)",
        "[![a](b.png)](c.md)": f"[![a]({raw}b.png)]({blob}c.md)",
        '<img src="b.png">': f'<img src="{raw}b.png">',
        '<a href="c.md">': f'<a href="{blob}c.md">',
        "[a]: docs/a.md": f"[a]: {blob}docs/a.md",
        "[a](https://b.test/c)": "[a](https://b.test/c)",
        "[a](mailto:b@c.test)": "[a](mailto:b@c.test)",
        "f(x)[1](2 + 3)": "f(x)[1](2 + 3)",
    }.items():
        assert index_readme(link) == expected


def test_every_link_of_the_readme_leads_to_a_file_of_ours_or_elsewhere() -> None:
    text = index_readme((REPOSITORY / "README.md").read_text())
    links = re.findall(r'\]\(([^)\s]+)\)|(?:src|href)="([^"]+)"', text)
    targets = [one or other for one, other in links]
    assert len(targets) > 10
    assert [target for target in targets if not target.startswith("https://")] == []

    ours = re.compile(
        rf"{re.escape(PROJECT['urls']['Source'])}/(?:blob|raw)/v{re.escape(PROJECT['version'])}/([^#]*)"
    )
    paths = [found[1] for target in targets if (found := ours.match(target))]
    assert paths
    assert [path for path in paths if not (REPOSITORY / path).exists()] == []


def test_all_links_of_the_project_are_of_one_repository() -> None:
    urls = dict(PROJECT["urls"])
    assert urls.keys() == {"Homepage", "Documentation", "Source", "Issues", "Changelog"}
    documentation = urls.pop("Documentation")
    assert documentation.startswith("https://")
    assert all(url == urls["Source"] or url.startswith(urls["Source"] + "/") for url in urls.values())
    changelog = re.fullmatch(rf"{re.escape(urls['Source'])}/blob/main/(.*)", urls["Changelog"])
    assert changelog is not None
    assert (REPOSITORY / changelog[1]).is_file()


def test_licences_of_all_that_is_packed_are_named() -> None:
    packed = {path.relative_to(REPOSITORY).as_posix() for path in REPOSITORY.glob("aioproduce/**/LICENSE*")}
    assert packed | {"LICENSE"} == set(PROJECT["license-files"])
    assert all((REPOSITORY / name).is_file() for name in PROJECT["license-files"])
    assert PROJECT["license"] == "Apache-2.0 AND MIT"
    assert "MIT License" in (REPOSITORY / PROJECT["license-files"][1]).read_text()


def jobs_that_must_pass() -> dict[str, dict[str, Any]]:
    jobs = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    return {name: job for name, job in jobs.items() if not job.get("continue-on-error")}


def pythons(job: dict[str, Any]) -> set[str]:
    """The versions that a job sets up."""
    matrix = job.get("strategy", {}).get("matrix", {})
    (given,) = (
        step["with"]["python-version"]
        for step in job["steps"]
        if step.get("uses", "").startswith("actions/setup-python@")
    )
    return set(matrix["python"]) if given == "${{ matrix.python }}" else {given}


def test_the_pythons_that_are_claimed_are_those_that_tests_run_on() -> None:
    claimed = {
        found[1]
        for classifier in PROJECT["classifiers"]
        if (found := re.fullmatch(r"Programming Language :: Python :: (\d+\.\d+)", classifier))
    }
    jobs = jobs_that_must_pass()

    assert pythons(jobs["gate"]) | pythons(jobs["versions"]) == claimed
    assert pythons(jobs["demo"]) == claimed


def test_the_systems_that_are_claimed_are_those_that_tests_run_on() -> None:
    claimed = {name for name in PROJECT["classifiers"] if name.startswith("Operating System ::")}
    runners = {job["runs-on"] for job in jobs_that_must_pass().values()}

    assert {SYSTEMS[runner.partition("-")[0]] for runner in runners} == claimed
