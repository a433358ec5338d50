"""The whole surface over a bucket of S3, on a server of its protocol by others."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any

import pytest

from caesar_server.jobs.files import Swept
from caesar_server.web.services import services_of

FILES = "/research/files"


@pytest.fixture
def served(s3_url: str, serve_files: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    boto3 = pytest.importorskip("boto3")
    for name, value in (("ACCESS_KEY_ID", "id"), ("SECRET_ACCESS_KEY", "secret")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with closing(boto3.session.Session().client("s3", endpoint_url=s3_url)) as client:
        client.create_bucket(Bucket="research")
    return serve_files(files="s3://research/some/where", s3_endpoint_url=s3_url)


def keys(served: Any) -> set[str]:
    return {stored.key for stored in services_of(served.app).blobs.stored_keys()}


def test_files_in_a_bucket(served: Any, forms: Any) -> None:
    data = os.urandom(20_000_000)
    form = forms.part("file", data, "large.bin") + forms.end
    told = served.post_form(form).json
    assert served.client.get(f"{FILES}/{told['id']}/content").data == data
    part = served.client.get(f"{FILES}/{told['id']}/content", headers={"Range": "bytes=9-12"})
    assert (part.status_code, part.data) == (206, data[9:13])
    again = served.post_form(form).json
    text = served.upload(b"The sky is blue.", "sky.txt")
    assert len(keys(served)) == 2

    content = [{"type": "text", "text": "?"}, {"type": "file", "file": {"file_id": text["id"]}}]
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    reply = served.client.post("/compat/chat/completions", json=body)
    assert "sky.txt (text/plain): The sky is blue." in reply.text

    bad = forms.part("file", b"x" * 20_000_000, "a") + forms.part("collection_id", b"c-1")
    assert served.post_form(bad + forms.end).status_code == 400
    for one in (told, again, text):
        assert served.client.delete(f"{FILES}/{one['id']}").status_code == 200
    assert keys(served) == set()
    assert services_of(served.app).files.sweep() == Swept()
