"""What is asked for, why, and what is installed: setup.cfg, requirements/bounds.toml, constraints.txt, locked*.txt."""

import ast
import configparser
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.limits import slowness

ROOT = Path(__file__).resolve().parents[2]
OLDEST = "3.11.0"  #: Python that is allowed
ADVISORY = re.compile(r"CVE-\d{4}-\d{4,}|GHSA-[0-9a-z]{4}-[0-9a-z]{4}-[0-9a-z]{4}")


def environment(python: str) -> dict[str, str]:
    """What differs between versions of Python, for markers."""
    return {"python_full_version": python, "python_version": python.rpartition(".")[0], "extra": ""}


def is_for(requirement: Requirement, python: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(environment(python))


def asked_for() -> list[Requirement]:
    """Every requirement of the package, its extras and its build; none of the package itself or an old Python."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    lines = settings["options"]["install_requires"].splitlines()
    for extra in settings["options.extras_require"].values():
        lines += extra.splitlines()
    lines += tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    found = [Requirement(line) for line in lines if line.strip()]
    return [each for each in found if canonicalize_name(each.name) != "disqued" and is_for(each, OLDEST)]


def least(specifiers: SpecifierSet) -> list[str]:
    """The lower bounds."""
    return [each.version for each in specifiers if each.operator == ">="]


def reasons() -> dict[str, dict[str, Any]]:
    return tomllib.loads((ROOT / "requirements" / "bounds.toml").read_text())


def locked() -> dict[str, Version]:
    """The one version of each package that the two commands install."""
    lines = (ROOT / "requirements" / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


ASKED = sorted(asked_for(), key=str)


def test_the_page_on_security_names_the_packages_of_a_plain_installation() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    needed = [Requirement(line).name for line in settings["options"]["install_requires"].split("\n") if line.strip()]
    told = " ".join((ROOT / "SECURITY.md").read_text().split())
    assert f"disqued needs {len(needed)} packages ({', '.join(sorted(needed))});" in told


@pytest.mark.parametrize("requirement", ASKED, ids=str)
def test_every_requirement_has_one_lower_bound_whose_reason_is_in_the_table(requirement: Requirement) -> None:
    entry = reasons()[canonicalize_name(requirement.name)]
    assert least(requirement.specifier) == [entry["least"]], (
        "the bound is another one than the table gives a reason for"
    )


@pytest.mark.parametrize("requirement", ASKED, ids=str)
def test_every_requirement_is_locked_at_a_version_that_it_allows(requirement: Requirement) -> None:
    assert locked()[canonicalize_name(requirement.name)] in requirement.specifier


@pytest.mark.parametrize("name", reasons())
def test_a_reason_is_whole_and_no_bound_and_no_lock_is_below_a_fix(name: str) -> None:
    entry = reasons()[name]
    assert entry["why"].endswith(".")
    assert name in {canonicalize_name(requirement.name) for requirement in ASKED} or entry.get("brought")
    assert ("advisory" in entry) == ("fixed" in entry) == ("No advisory is known" not in entry["why"])
    if "advisory" in entry:
        assert ADVISORY.fullmatch(entry["advisory"])
        assert locked()[name] >= Version(entry["fixed"])
        assert entry.get("brought") or Version(entry["least"]) >= Version(entry["fixed"])


def lines_with_hashes(name: str) -> list[tuple[Requirement, list[str]]]:
    """What a set with hashes asks for, and the hashes of each package."""
    text = (ROOT / "requirements" / name).read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [
        (Requirement(line.split("--hash")[0].strip()), re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
        for line in lines
    ]


def hashed(name: str = "locked.txt") -> dict[str, tuple[Version, list[str]]]:
    """The set with hashes: version and hashes of each package."""
    pairs = lines_with_hashes(name)
    return {
        canonicalize_name(each.name): (Version(str(each.specifier).removeprefix("==")), hashes)
        for each, hashes in pairs
    }


def test_the_set_with_hashes_is_the_locked_one_and_holds_all_that_a_daemon_its_clients_and_its_verbs_need() -> None:
    found = hashed()
    assert {name: version for name, (version, _) in found.items()}.items() <= locked().items()
    assert all(hashes for _, hashes in found.values())
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    lines = settings["options"]["install_requires"].splitlines()
    names = {canonicalize_name(Requirement(line).name) for line in lines if line.strip()}
    assert names <= found.keys()


def test_what_compiles_in_isolation_has_the_bounds_of_the_installation() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    asked = {canonicalize_name(requirement.name): requirement.specifier for requirement in asked_for()}
    used = {each.name: each.specifier for each in map(Requirement, build) if is_for(each, OLDEST)}
    assert len(used) == len(build) - 1, "all but the one for an old Python"
    assert used.items() <= asked.items()


def test_an_older_python_is_asked_for_nothing_before_setup_py_names_the_version_that_is_needed() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for python in ("3.7.0", "3.9.2", "3.10.14"):
        assert [line.partition(";")[0] for line in build if is_for(Requirement(line), python)] == ["setuptools"]
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    source = (ROOT / "setup.py").read_text()
    ast.parse(source, feature_version=(3, 7))
    assert settings["options"]["python_requires"] == ">=3.11"
    for version, said in (((3, 10, 14), "is Python 3.10.14"), ((3, 7, 0), "is Python 3.7.0")):
        program = f"import runpy, sys; sys.version_info = {version}; runpy.run_path('setup.py', run_name='__main__')"
        words = [sys.executable, "-c", program, "--name"]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, check=False, text=True, timeout=60 * slowness())
        assert done.returncode == 1
        assert done.stderr.startswith("disqued needs Python 3.11 or newer, and ")
        assert said in done.stderr
        assert done.stderr.count("\n") == 1


def test_the_locked_set_has_each_package_once() -> None:
    lines = (ROOT / "requirements" / "constraints.txt").read_text().splitlines()
    names = [canonicalize_name(line.split("==")[0]) for line in lines if not line.startswith("#")]
    assert len(names) == len(set(names))


def installed_by(name: str, python: str) -> set[str]:
    """The packages of a set with hashes that a version of Python gets."""
    return {
        canonicalize_name(each.name)
        for each, _ in lines_with_hashes(name)
        if each.marker is None or each.marker.evaluate(environment(python))
    }


@pytest.mark.parametrize("python", ["3.11.0", "3.11.2", "3.11.3", "3.12.0", "3.13.0", "3.14.0"])
@pytest.mark.parametrize("name", ["locked.txt", "locked-build.txt"])
def test_what_a_package_of_a_set_with_hashes_needs_is_in_it_whatever_the_python(name: str, python: str) -> None:
    found = installed_by(name, python)
    missing = {
        f"{package} needs {needed}"
        for package in found - {"async-timeout"}  # the only one that is not installed here, and it needs nothing
        for needed in map(Requirement, distribution(package).requires or ())
        if (needed.marker is None or needed.marker.evaluate(environment(python)))
        and canonicalize_name(needed.name) not in {"pip", *found}  # pip is what installs
    }
    assert missing == set()


def test_the_set_to_build_with_has_hashes_and_all_that_a_build_asks_for() -> None:
    found = hashed("locked-build.txt")
    assert {name: version for name, (version, _) in found.items()}.items() <= locked().items()
    assert all(hashes for _, hashes in found.values())
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert {canonicalize_name(Requirement(line).name) for line in asked} <= found.keys()
