from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ownstep import InvalidInput
from ownstep.report import build, explorer, read, story, write
from ownstep.report.page import embedded, headline, linked, maths
from ownstep.report.titles import row_name

from .conftest import ROOT, envelope, neural
from .conftest import write as put

HOSTILE = """</script><script>window.pwned=1</script><img src=x onerror="window.pwned=2">'"`{{ 7*7 }}&lt;b&gt;\u2028"""


class Elements(HTMLParser):
    """Every element with its attributes, and the text of scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def poisoned() -> dict:
    """A result that is hostile wherever a string can stand."""
    result = neural()
    result["arms"] = {HOSTILE: result["arms"]["one arm"]}
    run = result["arms"][HOSTILE]["runs"][0]
    run["methods"][HOSTILE] = run["methods"]["Algorithm 1"]
    run["devices"]["names"] = [HOSTILE, "b"]
    result["recorded"] = {HOSTILE: {"device": HOSTILE}}
    result["rows"] = [{"method": HOSTILE, HOSTILE: HOSTILE}]
    number = {"group": HOSTILE, "what": HOSTILE, "value": 1.5, "low": 1.2, "high": HOSTILE, "runs": HOSTILE}
    verdict = {"verdict": HOSTILE, "rule": HOSTILE, "findings": [HOSTILE], "numbers": [number]}
    settings = [{"what": HOSTILE, "paper": HOSTILE, "ours": HOSTILE, "why": HOSTILE}]
    provenance = {"seed": HOSTILE, "commit": HOSTILE, "machine": HOSTILE, "versions": {HOSTILE: HOSTILE}}
    return envelope("mnist", result, claim=HOSTILE, settings=settings, provenance=provenance, verdict=verdict)


def test_no_string_of_a_result_becomes_markup(results):
    put(results, "mnist", poisoned())
    clean = Elements(build(read(results, "r")).replace("pwned", ""))
    assert not [tag for tag, _ in clean.found if tag == "img"]
    scripts = [attributes for tag, attributes in clean.found if tag == "script"]
    plain = Elements(build(read(results.parent / "empty", "r")))
    assert len(scripts) == len([t for t, _ in plain.found if t == "script"])
    assert not [a for _, attributes in clean.found for a in attributes if a.startswith("on")]
    html = build(read(results, "r"))
    assert "7*7" in html  # what looks like a template is text
    assert "<script>window.pwned" not in html


def test_where_a_result_was_recorded_is_said_and_what_else_is_recorded_is_not(results):
    result = neural()
    result["recorded"] = {"a file": {"device": "a GPU", "seeds": [0, 1]}, "Algorithm 1": {"0.6": [62, 74, 90]}}
    put(results, "mnist", envelope("mnist", result))
    html = build(read(results, "r"))
    assert re.findall(r"<b>Recorded</b> ([^<]*)<", html) == ["a file: device a GPU · seeds [0, 1]"]


def test_data_inside_a_script_cannot_end_it():
    text = embedded({"a": HOSTILE})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"a": HOSTILE}
    with pytest.raises(ValueError, match="Out of range"):
        embedded([float("nan")])


def test_numbers_are_linked_and_names_are_not():
    text = str(
        linked("gain 1.51 over GD 1/L-bar, W8A, Fig. 1a by Algorithm 1: -3.2e-04 in 12,000 rounds (<95%)", "there", "x")
    )
    assert re.findall(r"<b>([^<]*)</b>", text) == ["1.51", "-3.2e-4", "12,000", "95%"]
    assert "&lt;" in text
    assert text.startswith('<a class="n" tabindex="-1" href="#there" title="x">Gain')
    assert "GD 1/L\u0304" in text
    assert maths("L_i < x^K") == "L<sub>i</sub> &lt; x<sup>K</sup>"
    assert maths("1/N sum_i x_i, two classes a device") == "1/N Σ<sub>i</sub> x<sub>i</sub>, two classes per device"
    assert headline("No <speed-ups> on SST-2") == (
        'No &lt;<span class="nb">speed-ups</span>&gt; on <span class="nb">SST-2</span>'
    )


def test_numbers_that_a_file_packs_with_slashes_are_a_list_in_words():
    text = str(linked("at 0.1/0.01/1e-4 over GD 1/L-bar 1.46/1.47/-, 3/4 of them, in 2026/a/b", "there", "x"))
    assert re.sub("<[^>]*>", "", text) == (
        "At 0.1, 0.01 and 1e-4 over GD 1/L\u0304 1.46, 1.47 and –, 3/4 of them, in 2026/a/b"
    )


def test_rows_of_numbers_are_named_in_words():
    said = {"1 one": "one device", "10 iid": "10 devices, alike (iid)", "by_norm, 50 / 1": "by norm: 50 over 1"}
    assert {what: row_name("curvature", what) for what in said} == said
    assert row_name("w8a", "10 iid") == "10 iid"


def test_the_page_stands_alone(results, tmp_path):
    target = tmp_path / "pages" / "deep" / "index.html"
    write(results, target)
    html = target.read_text()
    elements = Elements(html).found
    for tag, attributes in elements:
        for name in ("src", "href", "action", "srcset"):
            value = attributes.get(name) or ""
            assert not re.match(r"(?:[a-z]+:)?//", value), (tag, value)
    style = "".join(re.findall(r"<style>(.*?)</style>", html, re.DOTALL))
    assert "@import" not in style
    assert all(url.startswith("data:") for url in re.findall(r"url\((.*?)\)", style))
    for call in ("fetch(", "XMLHttpRequest", "import(", "WebSocket", "sendBeacon"):
        assert call not in html
    links = {a.get("href") for t, a in elements if t == "a"} - {None}
    assert all(link.startswith("#") for link in links)  # a page that was sent has no files to link to
    assert {link[1:] for link in links} <= {a.get("id") for _, a in elements}
    files = {a["data-file"] for t, a in elements if t == "a" and a.get("data-file")}
    assert files
    for link in files:  # they become links where the page still lies in its folder
        assert (target.parent / link).resolve().is_file()
    assert '<html lang="en" data-home="deep">' in html


def test_every_claim_has_its_row_and_its_section(results):
    found = read(results, "r")
    html = build(found)
    for record in found.records:
        assert f'id="{record.name}"' in html
        assert f'<a class="claimcard" href="#{record.name}">' in html
    assert "1.10 to 1.30" in html


def test_what_is_on_disk_decides_and_is_left_alone(results, tmp_path):
    before = {p: p.read_bytes() for p in results.rglob("*") if p.is_file()}
    once, twice = tmp_path / "a.html", tmp_path / "b.html"
    write(results, once)
    write(results, twice)
    assert once.read_bytes() == twice.read_bytes()
    assert {p: p.read_bytes() for p in results.rglob("*") if p.is_file()} == before


def test_no_results_at_all_is_the_caller_s_mistake(tmp_path):
    with pytest.raises(InvalidInput, match="no folder of results at .*nowhere"):
        write(tmp_path / "nowhere", tmp_path / "index.html")
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty", tmp_path / "index.html")
    assert "no result yet" in Path(tmp_path / "index.html").read_text()


@pytest.mark.slow
def test_the_repository_s_page_is_light_and_says_what_was_found(own_results, own_page):
    """The numbers of the first screen, counted a second way from the files."""
    found, html = own_results, own_page
    assert len(html.encode()) < 1_400_000
    words = {r.name: r.word for r in found.records if r.name not in story.OWN_CLAIMS and r.data is not None}
    held = sum(word == "holds" for word in words.values())
    assert story.facts(found)[0].number == f"{held} of {len(words)}"
    assert f"{held} of its {len(words)} claims hold" in story.finding(found)
    cifar = next(r for r in found.records if r.name == "cifar10")
    assert cifar.word == "holds"
    assert story.fair(cifar).word == "does not hold here"
    assert "L-BFGS" in story.fair(cifar).missing
    rows = json.loads((ROOT / "results" / "curvature" / "result.json").read_text())["result"]["rows"]
    where = {"data": "w8a 1e-05", "method": "own_curvature", "split": "label", "devices": 10, "rank": 10}
    own = [r["exchanges"] for r in rows if all(r[k] == v for k, v in where.items())]
    assert f"own curvature: {sum(own) / len(own):.0f} exchanges where L-BFGS needs" in story.advice(found)
    assert f"{sum(own) / len(own):.1f} [" in card_of(html, "curvature")
    cards = html[html.index('<section id="verdicts"') : html.index('<section id="idea"')]
    ours = cards.index("Ours, counted apart")
    assert all((cards.index(f'href="#{r.name}"') > ours) == (r.name in story.OWN_CLAIMS) for r in found.records)


def card_of(html: str, name: str) -> str:
    """What a card shows before anything is unfolded, without its tags."""
    article = html[html.index(f'<article id="{name}"') :]
    return re.sub(r"<[^>]+>", "", article[: article.index("<details")]).replace("&#39;", "'")


def test_every_card_has_its_number_and_the_chart_of_the_same_setting(own_results, own_page):
    for record in own_results.records:
        text = card_of(own_page, record.name)
        assert "Measured" in text, record.name
        with_interval = any(n.get("low") is not None for n in record.numbers)
        assert not with_interval or re.search(r"\[−?[\d.]+, [\d.]+\]", text), record.name
    numbers = {r.name: r.numbers for r in own_results.records}
    last = next(n for n in numbers["dirichlet"] if n["what"] == "alpha = 0.1")
    shown = card_of(own_page, "dirichlet")
    assert f"{last['value']:.2f} [{last['low']:.2f}, {last['high']:.2f}] at alpha = 0.1" in shown
    assert f"Where a speed-up of {last['value']:.2f} comes from (Dirichlet, alpha 0.1)" in shown
    sst2 = card_of(own_page, "sst2")
    assert "Not run: GD tuned, L-BFGS." in sst2
    assert "Run, but diverged or never got that far: Nesterov" in sst2
    assert "Its test accuracy lags" in card_of(own_page, "mnist")
    cifar = card_of(own_page, "cifar10")
    assert "best losses of all methods in the product: 1.22. The measured 1.40 is to the larger of two final" in cifar
    assert "default rank 10" in card_of(own_page, "curvature")
    assert "Mean over all 15 settings" in card_of(own_page, "w8a")


def test_every_split_of_the_attribution_has_its_waterfall(own_results, own_page):
    record = next(r for r in own_results.records if r.name == "attribution")
    groups = {n["group"] for n in record.numbers}
    assert own_page.count('<svg class="picture waterfall"') == 2 * len(groups) - 1  # digits is in no other experiment
    article = own_page[own_page.index('<article id="attribution"') :]
    assert article[: article.index("</article>")].count('<svg class="picture waterfall"') == len(groups)


AVOIDED = r"\b(?:holds? here|beside it|arms?|arrives?|cells?|slices?)\b"


def test_our_own_words_are_plain(results):
    """Templates, and what this package writes; sentences of an experiment come from its module."""
    shown = re.sub(r"(?s)<(script|style).*?</\1>|<[^>]+>", " ", build(read(results.parent / "empty", "r")))
    assert not re.findall(AVOIDED, shown)
    for name in ("page.html", "experiment.html", "explorer.html"):
        text = re.sub(r"{[{%#].*?[}%#]}|<[^>]+>", " ", explorer.asset(name), flags=re.DOTALL)
        assert not re.findall(AVOIDED, text), name


def test_a_claim_without_a_rival_is_not_a_comparison(results):
    put(results, "estimates", envelope("estimates", {"networks": {}}))
    put(results, "pep-devices", envelope("pep-devices", {"rows": []}))
    found = {r.name: story.fair(r).word for r in read(results, "r").records}
    assert found["estimates"] == "not a comparison"
    assert found["pep-devices"] == "not tested"
    assert "Not run: GD matched step, GD tuned, Nesterov, " in build(read(results, "r"))
    assert found["w8a"] == "no result yet"
    assert found["mnist"] == "does not hold here"  # the three methods of the double end alike
