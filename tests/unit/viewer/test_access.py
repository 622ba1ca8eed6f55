"""Who is answered: one address, one token, its own page."""

import pytest

from tensorldm.viewer.access import HEADERS, LOOPBACK, Access

ACCESS = Access(8080, "right-token")
OWN = {"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:8080", "sec-fetch-site": "same-origin"}


def test_the_own_page_may_do_everything():
    assert ACCESS.refusal(OWN, changes=True) is None
    assert ACCESS.refusal(OWN, changes=False) is None


def test_an_address_typed_by_the_user_may_look_but_not_change():
    typed = {"host": "127.0.0.1:8080", "sec-fetch-site": "none"}
    assert ACCESS.refusal(typed, changes=False) is None
    assert ACCESS.refusal(typed, changes=True) is not None


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1", "127.0.0.1:8081", "127.0.0.1:8080.evil.example", ""]
)
def test_a_name_that_an_attacker_points_here_is_refused(host):
    assert ACCESS.refusal({**OWN, "host": host}, changes=False) is not None


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "https://127.0.0.1:8080",
        "http://127.0.0.1:8081",
        "http://127.0.0.1:8080.evil.example",
    ],
)
@pytest.mark.parametrize("changes", [True, False])
def test_a_foreign_origin_is_refused(origin, changes):
    assert ACCESS.refusal({**OWN, "origin": origin}, changes=changes) is not None


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_page_of_the_same_browser_is_refused_even_without_an_origin(site):
    assert ACCESS.refusal({"host": OWN["host"], "sec-fetch-site": site}, changes=False) is not None


def test_a_link_in_another_page_opens_the_viewer_but_never_inside_that_page():
    clicked = {"host": OWN["host"], "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert ACCESS.refusal({**clicked, "sec-fetch-dest": "document"}, changes=False) is None
    assert ACCESS.refusal({**clicked, "sec-fetch-dest": "document"}, changes=True) is not None
    assert ACCESS.refusal({**clicked, "sec-fetch-dest": "iframe"}, changes=False) is not None
    assert (
        ACCESS.refusal({**clicked, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}, changes=False) is not None
    )


@pytest.mark.parametrize(
    "path", ["/", "", "/wrong-token/", "/right-toke/", "/right-token2/api", "//right-token/", "/RIGHT-TOKEN/", "/é/"]
)
def test_a_path_without_the_token_leads_nowhere(path):
    assert ACCESS.path_within(path) is None


def test_the_rest_of_the_path_comes_after_the_token():
    assert ACCESS.path_within("/right-token/") == ""
    assert ACCESS.path_within("/right-token/api/volume/r0/fa.nii") == "api/volume/r0/fa.nii"


def test_every_start_has_another_token_too_long_to_guess():
    tokens = {Access(1).token for _ in range(50)}
    assert len(tokens) == 50
    assert min(map(len, tokens)) >= 32


def test_the_address_is_of_this_machine_only():
    assert LOOPBACK == "127.0.0.1"
    assert ACCESS.address == "http://127.0.0.1:8080/right-token/"


def test_the_policy_allows_no_other_source_and_no_inline_code():
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "*" not in policy
