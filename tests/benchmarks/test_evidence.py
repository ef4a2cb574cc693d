"""What the pages quote is what committed results give; and `benchmarks.evidence`, with programs that end soon."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from benchmarks.__main__ import without_folders
from benchmarks.evidence import blocks, pages, plots, results, running, setting, svg
from benchmarks.evidence.blocks import BLOCKS
from benchmarks.evidence.entries import ENTRIES, PYTEST, Entry
from benchmarks.evidence.medians import nested, of_junit
from benchmarks.evidence.pages import Place
from benchmarks.evidence.running import Outcome, last_json
from benchmarks.plans import SECTIONS, Effort
from tests.benchmarks.evidence_samples import FIGURES, KAFKA, document_of

QUIET = Console(quiet=True)
VERSIONS = {
    "CPython": "3.11.7",
    "aioproduce": "1",
    "extensions": "Cython 3",
    "uvloop": "0.23.0",
    "Kafka": "4",
    "Java": "17",
}


# -- the repository ---


def test_no_result_names_a_folder_of_the_machine_that_measured() -> None:
    for path in (setting.REPOSITORY / setting.RESULTS).glob("*.json"):
        assert not re.findall(r'"/[^"\s]*/[^"\s]*"', path.read_text()), path.name


def test_a_file_is_its_name_alone() -> None:
    document = {"command": ["--json", "/tmp/here/x.out", "aioproduce/trio"], "ca": "/tmp/a/ca.pem", "n": 1}
    assert without_folders(document) == {
        "command": ["--json", "x.out", "aioproduce/trio"],
        "ca": "ca.pem",
        "n": 1,
    }


def test_every_figure_in_the_pages_is_a_committed_results() -> None:
    assert pages.check(Place()) == []


def test_every_entry_is_shown_by_a_block_and_every_block_shows_entries() -> None:
    shown = {entry for block in BLOCKS.values() for entry in block.entries}
    assert shown == set(ENTRIES)


@pytest.mark.parametrize("name", ENTRIES)
def test_the_program_of_an_entry_is_there(name: str) -> None:
    command = ENTRIES[name].command
    assert command[0] == "-m"
    assert find_spec(command[1]) is not None
    assert (setting.REPOSITORY / setting.program_of(command)).exists() or (
        setting.REPOSITORY / f"{setting.program_of(command)}.py"
    ).exists()


def test_the_table_of_2016_is_of_a_million_records() -> None:
    section = SECTIONS["classic"](Effort(clients=("aioproduce", "aiokafka")))
    assert {case.records for _, case in section.runs} == {1_000_000}


# -- pages ---


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A repository with a page and the results that it shows; each result is three commits old."""
    monkeypatch.setattr(setting, "commits_since", lambda commit: 3)
    place = Place(tmp_path)
    for name, figures in FIGURES.items():
        results.write(document_of(name, figures), place.results)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "figures.md").write_text(
        "# Figures\n\nAs measured:\n\n<!-- evidence: transactions -->\n<!-- end -->\n\nAnd so on.\n"
    )
    return place


def page(place: Place) -> Path:
    return place.root / "docs" / "figures.md"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, text
    path.write_text(text.replace(old, new))


def test_a_block_is_written_between_its_markers_and_nowhere_else(place: Place) -> None:
    pages.write(place)
    text = page(place).read_text()
    assert text.startswith(
        "# Figures\n\nAs measured:\n\n<!-- evidence: transactions -->\n\n![transactions](images/evidence/"
    )
    assert text.endswith("<!-- end -->\n\nAnd so on.\n")
    assert "| 1,000 | 300.0 | 150.0 | 2.00 (wanted 2: met) | 300.0 | 1.00 (wanted 1.2: **missed**) |" in text
    assert "[transactions](../benchmarks/results/transactions.json)" in text
    assert "25 November 2026 at 0123456" in text
    assert "2 x A processor, Linux 6, load 0.5 before and 2.0 after; CPython 3.11.7, uvloop 0.23.0, " in text
    assert "Since then 3 commits changed `aioproduce/`." in text
    assert (place.plots / "transactions.svg").read_text().startswith("<svg ")
    assert pages.check(place) == []
    pages.write(place)
    assert page(place).read_text() == text


def test_how_many_commits_came_later_makes_no_page_wrong(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages.write(place)
    monkeypatch.setattr(setting, "commits_since", lambda commit: None)
    assert pages.check(place) == []
    pages.write(place)
    assert "Since then an unknown number of commits changed" in page(place).read_text()
    assert pages.check(place) == []


def test_a_figure_that_was_edited_is_found(place: Place) -> None:
    pages.write(place)
    edit(page(place), "| 300.0 | 150.0 |", "| 900.0 | 150.0 |")
    (found,) = pages.check(place)
    assert found == (
        "docs/figures.md: the block 'transactions' is not what the results give: "
        "python -m benchmarks.evidence tables"
    )


def test_a_plot_that_was_edited_or_that_no_page_shows_is_found(place: Place) -> None:
    pages.write(place)
    plot = place.plots / "transactions.svg"
    plot.write_text(plot.read_text().replace("aioproduce", "ours"))
    (place.plots / "null.svg").write_text("<svg/>")
    edited, unshown = pages.check(place)
    assert edited.startswith("transactions.svg: the plot is not what the results give")
    assert unshown == "docs/images/evidence/null.svg: no page has its block"


def test_a_block_of_a_missing_result_is_found_and_nothing_is_written(place: Place) -> None:
    results.path_of("transactions", place.results).unlink()
    (found,) = pages.check(place)
    assert "transactions; make evidence EVIDENCE='--only transactions'" in found
    with pytest.raises(blocks.MissingResultError, match="results that are missing"):
        pages.write(place)
    assert "<!-- evidence: transactions -->\n<!-- end -->" in page(place).read_text()


def test_a_block_of_another_interpreter_is_of_its_own_result(place: Place) -> None:
    edit(page(place), "evidence: transactions ", "evidence: transactions@3.13 ")
    (found,) = pages.check(place)
    assert "results that are missing: transactions" in found
    document = document_of("transactions", FIGURES["transactions"])
    results.write(document | {"name": "transactions@3.13"}, place.results)
    pages.write(place)
    assert "[transactions@3.13](../benchmarks/results/transactions@3.13.json)" in page(place).read_text()
    assert (place.plots / "transactions-3.13.svg").exists()
    assert pages.check(place) == []


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("<!-- end -->", "", "of 1 blocks 0 have an end"),
        ("evidence: transactions", "evidence: transaction", "there is no block 'transaction'"),
    ],
)
def test_a_marker_that_is_wrong_is_found(place: Place, old: str, new: str, found: str) -> None:
    edit(page(place), old, new)
    (problem,) = pages.check(place)
    assert found in problem


def test_the_blocks_that_no_page_has_are_added_to_one(place: Place) -> None:
    """Those whose results are there: `throughput` wants real Kafka's, too."""
    added = pages.add(page(place), place)
    assert {"null", "chaos", "targets"} <= set(added)
    assert not {"transactions", "throughput", "kafka"} & set(added)
    text = page(place).read_text()
    assert (
        text.count("## Throughput on the null broker, every mode\n\n<!-- evidence: null -->\n<!-- end -->\n")
        == 1
    )
    assert pages.add(page(place), place) == []
    assert page(place).read_text() == text


def test_a_marker_that_is_indented_is_an_example(place: Place) -> None:
    (place.root / "README.md").write_text("    <!-- evidence: nothing -->\n    <!-- end -->\n")
    pages.write(place)
    assert pages.check(place) == []
    assert (place.root / "README.md").read_text() == "    <!-- evidence: nothing -->\n    <!-- end -->\n"


def test_the_targets_are_shown_as_far_as_they_were_measured(place: Place) -> None:
    """The others' results are missing. A target is today's, whatever the run was judged by."""
    documents = blocks.documents_of("targets", place.results)
    assert set(documents) == {"null", "latency"}
    text = blocks.render("targets", documents, "plots", "results", lambda _: 0)
    assert (
        "| null | await-each / aiokafka await-each | 4.00 x | 2.00 x | >= 13.50 | 15 x | **missed** |" in text
    )
    assert text.count("Since then 0 commits") == 2


def test_proofs_are_shown_next_to_each_other_as_far_as_they_were_run(place: Place) -> None:
    (place.results / "chaos.json").unlink()
    documents = blocks.documents_of("chaos", place.results)
    assert set(documents) == {"chaos-full-rate", "chaos-control"}
    text = blocks.render("chaos", documents, "plots", "results", lambda _: 0)
    assert "| figure | chaos-full-rate | chaos-control |" in text
    assert "| duplicated | 0 | 1,066 |" in text


def test_the_chart_of_readme_has_a_bar_for_each_client_on_uvloop_or_its_only_way() -> None:
    kafka = document_of("kafka", KAFKA)
    assert plots.headline_rates(kafka) == {
        ("aioproduce", "await-each"): 1_000_000.0,
        ("franz-go", "callback"): 1_500_000.0,
    }
    drawn = plots.headline({"kafka": kafka})
    assert "aioproduce, await-each" in drawn
    assert "1,500,000" in drawn


@pytest.mark.parametrize("name", [name for name in FIGURES if name in BLOCKS])
def test_every_sample_is_drawn_the_same_each_time(name: str, place: Place) -> None:
    """With all of its figures; a plot is an SVG that loads nothing and has colours for a dark page."""
    if name == "spark-sizing":
        pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    documents = blocks.documents_of(name, place.results)
    text = blocks.render(name, documents, "plots", "results", lambda _: 0)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) > 2
    plots = [blocks.plot_of(name, documents) for _ in range(2)]
    assert plots[0] == plots[1]
    if plots[0] is not None:
        root = ElementTree.fromstring(plots[0])
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "prefers-color-scheme: dark" in plots[0]
        assert not any(name.endswith("href") for each in root.iter() for name in each.attrib)


@pytest.mark.parametrize(
    ("points", "labels"),
    [
        ([(1.0, 300.0), (100.0, 2e6)], {"1", "10", "100", "1,000", "10,000", "100,000", "1,000,000"}),
        ([(10.0, 1.0), (1000.0, 3.0)], {"10", "100", "1,000", "1", "2"}),
    ],
)
def test_a_logarithmic_scale_has_round_numbers(points: list[tuple[float, float]], labels: set[str]) -> None:
    plot = svg.lines("title", {"one": points}, "how many", is_logarithmic=True)
    texts = {each.text for each in ElementTree.fromstring(plot).iter("{http://www.w3.org/2000/svg}text")}
    assert texts == labels | {"title", "one", "how many"}


# -- results ---


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda document: document.pop("commit"), "no field 'commit'"),
        (lambda document: document.update(more=1), "an unknown field 'more'"),
        (lambda document: document.update(seconds="5"), "'seconds' is '5'"),
        (lambda document: document.update(commit="main"), "'main' is not a commit"),
        (lambda document: document.update(began_at="today"), "began at 'today'"),
        (lambda document: document.update(is_clean=False), "clean and changed do not agree"),
        (lambda document: document.update(medians={}), "no medians"),
        (lambda document: document["machine"].pop("kernel"), "no 'kernel' in 'machine'"),
        (lambda document: document["versions"].pop("Java"), "no 'Java' in 'versions'"),
    ],
)
def test_a_result_that_lacks_something_is_found(
    place: Place, change: Callable[[dict[str, Any]], object], found: str
) -> None:
    document = document_of("transactions", FIGURES["transactions"])
    change(document)
    path = results.path_of("transactions", place.results)
    path.write_text(json.dumps(document))
    assert any(found in problem for problem in pages.check(place))


def test_a_result_under_another_name_is_found(place: Place) -> None:
    path = results.path_of("transactions", place.results)
    path.rename(path.with_name("other.json"))
    assert "other.json: its name is 'transactions'" in pages.check(place)


# -- running ---


def entry_of(name: str, program: str) -> Entry:
    return Entry(name, name, ("-c", program), 0.01, nested, environment={"TOLD": "7"})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Logs and results are in a folder of the test's."""
    monkeypatch.setattr(running, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(setting, "versions", lambda: VERSIONS)
    return tmp_path / "results"


def run(entries: list[Entry], folder: Path, *, again: bool = True) -> list[running.Done]:
    return running.run_all(entries, folder, QUIET, again=again, quick=False)


def test_what_fails_is_reported_and_the_rest_goes_on(here: Path) -> None:
    fails = entry_of("fails", "import sys; print('no JSON'); sys.exit('for a reason')")
    misses = entry_of("misses", "import sys; print('{\"p99\": 9.5}'); sys.exit(1)")
    well = entry_of(
        "well", "import os; print('a child said this'); print('{\"told\": %s}' % os.environ['TOLD'])"
    )
    done = run([fails, misses, well], here)
    assert [each.outcome for each in done] == [Outcome.FAILED, Outcome.ODD_EXIT, Outcome.MEASURED]
    assert "for a reason" in done[0].why
    assert "exit code 1" in done[1].why
    assert not results.path_of("fails", here).exists()
    kept = results.read("misses" + setting.python_suffix(), here)
    assert kept is not None
    assert (kept["exit_code"], kept["medians"]) == (1, {"p99": 9.5})
    kept = results.read("well" + setting.python_suffix(), here)
    assert kept is not None
    assert (kept["figures"], kept["exit_code"]) == ({"told": 7}, 0)
    assert kept["commit"] == setting.commit()
    for path in here.iterdir():
        assert results.problems(path) == []


def test_a_result_of_this_code_is_not_measured_again(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setting, "changed", list)
    monkeypatch.setattr(setting, "is_unchanged_since", lambda commit, command: True)
    well = entry_of("well", "print('{\"a\": 1}')")
    assert [each.outcome for each in run([well], here, again=False)] == [Outcome.MEASURED]
    assert [each.outcome for each in run([well], here, again=False)] == [Outcome.CURRENT]
    assert [each.outcome for each in run([well], here, again=True)] == [Outcome.MEASURED]
    monkeypatch.setattr(setting, "is_unchanged_since", lambda commit, command: False)
    assert [each.outcome for each in run([well], here, again=False)] == [Outcome.MEASURED]


def test_a_result_of_changes_that_were_not_committed_is_measured_again(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setting, "changed", lambda: ["aioproduce/errors.py"])
    monkeypatch.setattr(setting, "is_unchanged_since", lambda commit, command: True)
    well = entry_of("well", "print('{\"a\": 1}')")
    run([well], here)
    assert [each.outcome for each in run([well], here, again=False)] == [Outcome.MEASURED]


def as_program(file: Path, content: str) -> Entry:
    """A test that is run as a program, without the plugins that are installed here."""
    file.write_text(content)
    command = (*PYTEST, "-W", "error", str(file))
    return Entry("it", "it", command, 0.1, of_junit, environment={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})


def test_a_test_is_a_program_whose_properties_are_its_figures(here: Path, tmp_path: Path) -> None:
    content = (
        "def test_it(record_property):\n    record_property('rate', 2.5)\n    record_property('lost', 0)\n"
    )
    entry = as_program(tmp_path / "test_it.py", content)
    assert [each.outcome for each in run([entry], here)] == [Outcome.MEASURED]
    kept = results.read("it" + setting.python_suffix(), here)
    assert kept is not None
    assert kept["medians"] == {"tests": 1, "rate": 2.5, "lost": 0.0}


def test_a_test_that_is_skipped_has_no_figures(here: Path, tmp_path: Path) -> None:
    content = "import pytest\n\n\ndef test_it():\n    pytest.skip('no Java')\n"
    (done,) = run([as_program(tmp_path / "test_it.py", content)], here)
    assert done.outcome is Outcome.FAILED
    assert "'skipped': 1" in done.why


@pytest.mark.parametrize("printed", ["", "words\n", "[1, 2]\nand words\n"])
def test_output_that_does_not_end_with_json_is_refused(printed: str) -> None:
    with pytest.raises(ValueError, match="does not end with JSON"):
        last_json(printed)


def test_json_may_be_of_several_lines_behind_others() -> None:
    assert last_json('{words}\n[more\n{"a": [\n 1]\n}\n') == {"a": [1]}


def test_an_interrupt_ends_the_program_that_runs_and_what_that_started(tmp_path: Path) -> None:
    """By SIGTERM: a process in the background ignores what Ctrl-C sends."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    waits = f"import signal; fifo = open({str(fifo)!r}, 'w'); print('begun', file=fifo, flush=True); signal.pause()"
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {waits!r}])"
    program = (
        "import pathlib, sys; from benchmarks.evidence import __main__ as evidence, entries, medians, running; "
        f"entries.ENTRIES['waits'] = entries.Entry('waits', 'waits', ('-c', {starts!r}), 0.1, medians.nested); "
        f"running.LOGS = running.TRIALS = pathlib.Path({str(tmp_path)!r}); "
        "sys.exit(evidence.main(['--quick', '--only', 'waits']))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as process:
        with fifo.open() as begun:
            assert begun.readline() == "begun\n"
            process.send_signal(signal.SIGTERM)
            assert begun.read() == ""  # its only writer is gone
        _, printed = process.communicate()
    assert process.returncode == 130
    assert "what has a result is kept" in printed


# -- commits ---


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with a product, a program and a page."""
    monkeypatch.setattr(setting, "REPOSITORY", tmp_path)
    for name in ("aioproduce", "benchmarks", "tests", "docs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    git(tmp_path, "init", "--quiet")
    save(tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def save(folder: Path) -> str:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "one")
    return setting.commit()


BENCH = ("-m", "benchmarks.latency")


@pytest.mark.parametrize(
    ("path", "is_unchanged"),
    [
        ("aioproduce/file", False),
        ("benchmarks/file", False),
        ("tests/file", True),
        ("docs/file", True),
        ("benchmarks/results/latency.json", True),
        ("benchmarks/evidence/tables.py", True),
        ("benchmarks/README.md", True),
        ("aioproduce/deeper/README.md", True),
    ],
)
def test_a_result_is_of_the_product_and_its_program(repository: Path, path: str, is_unchanged: bool) -> None:
    before = setting.commit()
    (repository / path).parent.mkdir(exist_ok=True)
    (repository / path).write_text("changed")
    git(repository, "add", "--all")
    assert setting.is_unchanged_since(before, BENCH) is is_unchanged
    save(repository)
    assert setting.is_unchanged_since(before, BENCH) is is_unchanged


def test_commits_since_are_counted_where_they_changed_the_product(repository: Path) -> None:
    first = setting.commit()
    for path in ("aioproduce/file", "docs/file", "aioproduce/file"):
        (repository / path).write_text(f"{path} {setting.commit()}")
        save(repository)
    assert setting.commits_since(first) == 2
    assert setting.commits_since(setting.commit()) == 0
    assert setting.commits_since("0" * 40) is None


def test_what_is_not_committed_is_named_but_for_results_and_pages(repository: Path) -> None:
    assert setting.changed() == []
    (repository / "benchmarks" / "results").mkdir()
    (repository / "benchmarks" / "results" / "latency.json").touch()
    (repository / "docs" / "page.md").touch()
    assert setting.changed() == []
    (repository / "aioproduce" / "new.py").touch()
    assert setting.changed() == ["aioproduce/new.py"]


def test_the_versions_and_the_machine_of_a_result_are_told() -> None:
    versions, machine = setting.versions(), setting.machine()
    assert versions["CPython"] == ".".join(map(str, sys.version_info[:3]))
    assert versions["uvloop"]
    assert {"Kafka", "Java", "extensions", "aioproduce", "pyspark"} <= versions.keys()
    assert machine["processors"] > 0
    assert machine["memory_mib"] > 100
