"""How clients find the API."""

from pathlib import Path

from towline.cli.connection import DEFAULT_API_URL, find_connection


def _data(directory: Path) -> dict[str, str]:
    (directory / "api-url").write_text("http://127.0.0.1:9999\n")
    (directory / "token").write_text("twl_local\n")
    return {"TOWLINE_DATA_DIR": str(directory)}


def test_what_the_stack_left_is_found(tmp_path: Path) -> None:
    found = find_connection(_data(tmp_path))
    assert (found.api_url, found.token) == ("http://127.0.0.1:9999", "twl_local")
    assert "twl_local" not in repr(found)


def test_variables_come_first(tmp_path: Path) -> None:
    environment = {**_data(tmp_path), "TOWLINE_API_URL": "https://towline.example/", "TOWLINE_TOKEN": "twl_mine"}
    found = find_connection(environment)
    assert (found.api_url, found.token) == ("https://towline.example", "twl_mine")


def test_the_local_token_is_not_sent_elsewhere(tmp_path: Path) -> None:
    assert find_connection({**_data(tmp_path), "TOWLINE_API_URL": "https://towline.example"}).token is None


def test_the_local_token_is_sent_to_the_local_stack_by_its_url(tmp_path: Path) -> None:
    assert find_connection({**_data(tmp_path), "TOWLINE_API_URL": "http://127.0.0.1:9999/"}).token == "twl_local"


def test_without_anything_the_default_is_taken(tmp_path: Path) -> None:
    found = find_connection({"TOWLINE_DATA_DIR": str(tmp_path / "absent")})
    assert (found.api_url, found.token) == (DEFAULT_API_URL, None)
