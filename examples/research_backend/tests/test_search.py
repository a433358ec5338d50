from pathlib import Path

import pytest

from caesar_backend_folder.reading import NoTextError, folder_documents, is_excluded, texts_of
from caesar_backend_folder.search import Document, Index, best_sentence, passages_of, terms_of

PAGE = b"""<!doctype html><html><head><title>Tides</title><style>p {color: red}</style></head>
<body><h2>In the Bay</h2><p>They rise <b>16</b> metres &amp; fall.<ul><li>Ebb<li>Flood</ul>
<script>alert("<p>unseen</p>")</script></body></html>"""


def document(text: str, name: str = "page") -> Document:
    return Document(name, name, f"file:{name}", text, text)


def test_html_becomes_paragraphs_with_their_marks() -> None:
    raw, markdown = texts_of("text/html", PAGE)
    assert raw == PAGE.decode()
    assert markdown == "Tides\n\n## In the Bay\n\nThey rise 16 metres & fall.\n\n- Ebb\n\n- Flood"


@pytest.mark.parametrize(
    ("content_type", "data", "why"),
    [
        ("application/pdf", b"%PDF-1.7", "it is application/pdf"),
        ("text/plain", b"\xff\xfe\x00", "it is not UTF-8"),
    ],
)
def test_what_is_no_text_is_refused(content_type: str, data: bytes, why: str) -> None:
    with pytest.raises(NoTextError, match=why):
        texts_of(content_type, data)


def test_a_mark_of_byte_order_is_no_text() -> None:
    assert texts_of("text/plain", b"\xef\xbb\xbfOwls") == ("Owls", "Owls")


def test_files_outside_long_ones_and_others_are_left_out(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    (notes / "below").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("A secret.")
    (notes / "link.txt").symlink_to(tmp_path / "secret.txt")
    (notes / "long.txt").write_text("long " * 100)
    (notes / "below" / "a small.txt").write_text("A small one.")
    (notes / "broken.txt").write_bytes(b"\xff\xfe")
    (notes / "page.html").write_text("<h1>A page</h1><p>Text.")
    (notes / "program.py").write_text("pass")
    found = list(folder_documents(notes, "https://notes.example/", max_file_bytes=100))
    assert [(one.id, one.title, one.url) for one in found] == [
        ("below/a small.txt", "a small", "https://notes.example/below/a%20small.txt"),
        ("page.html", "A page", "https://notes.example/page.html"),
    ]


def test_passages_stand_below_their_headings() -> None:
    text = "# Owls\nThey hunt.\n\n## Food\n\n- mice\n- voles\n1. first\n\nNo heading"
    found = [(one.number, one.heading, one.text) for one in passages_of(document(text))]
    assert found == [
        (1, "Owls", "They hunt."),
        (2, "Food", "mice"),
        (3, "Food", "voles"),
        (4, "Food", "first"),
        (5, "Food", "No heading"),
    ]


def test_rare_words_count_more_than_frequent_ones() -> None:
    pages = [f"The ship sails. The ship is number {number}." for number in range(9)]
    pages.append("A ship with a unicorn on its flag.")
    index = Index().plus(document(page, str(at)) for at, page in enumerate(pages))
    best = index.search("Which ship has the unicorn?")
    assert best[0].passage.document.id == "9"
    assert best[0].score == 1 > best[1].score > 0
    assert index.search("zeppelin") == []


def test_an_index_that_grew_is_as_one_made_at_once() -> None:
    one, two = document("Owls hunt mice.", "one"), document("Mice eat corn.", "two")
    assert Index().plus([one]).plus([two]) == Index().plus([one, two])


def test_words_are_missing_until_they_are_read() -> None:
    index = Index().plus([document("Owls hunt.\n\nMice eat.")])
    assert index.missing("Do owls eat zeppelins?", set()) == {"owls", "eat"}
    assert index.missing("Do owls eat zeppelins?", {"page#1"}) == {"eat"}


def test_terms_leave_out_what_every_question_has() -> None:
    assert terms_of("Tell me about the Gallic War") == ["gallic", "war"]


def test_the_best_sentence_has_most_of_the_words() -> None:
    (passage,) = passages_of(document("Owls sleep. Owls hunt mice at night! They fly."))
    assert best_sentence(passage, "When do owls hunt?") == "Owls hunt mice at night!"


@pytest.mark.parametrize(
    ("url", "excluded"),
    [
        ("https://example.com/a", True),
        ("https://www.Example.com:8000/a", True),
        ("https://notexample.com/a", False),
        ("file:example.com", False),
    ],
)
def test_subdomains_are_excluded_too(url: str, excluded: bool) -> None:
    assert is_excluded(url, ("example.com",)) is excluded
