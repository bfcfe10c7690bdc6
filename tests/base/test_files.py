"""Files: of a regular kind and a sensible size, written whole or not at all."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import covey
from covey import RunError
from covey.base import files as atomic_io
from covey.base.files import file_hash, read_bounded, replace_whole
from covey.runs import states as checkpoints
from covey.runs.folder import checkpoint_path, checkpoint_paths, rounds_in
from covey.runs.states import checkpoint_bytes, load_checkpoint, set_aside_from, thin

TENSORS = {
    "cluster/0/weight": torch.arange(6.0).reshape(2, 3),
    "cluster/0/num_batches_tracked": torch.tensor(7),
}
STATE = {"risk": [0.5, None], "streams": {"seed": 2**70}, "text": "é"}


def saved(folder: Path, *rounds: int) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [checkpoint_path(folder, t) for t in rounds]
    for t, path in zip(rounds, paths, strict=True):
        replace_whole(path, checkpoint_bytes(t, TENSORS, STATE))
    return paths


def is_whole(path: Path) -> bool:
    try:
        load_checkpoint(path)
    except RunError:
        return False
    return True


def newest_whole(folder: Path) -> Path:
    return [path for path in checkpoint_paths(folder) if is_whole(path)][-1]


def assert_same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert right[name].dtype == value.dtype
        assert torch.equal(right[name], value)


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor(2**60),
        torch.tensor([True, False]),
        torch.zeros(0, 3),
        torch.ones(2, dtype=torch.bfloat16),
        torch.arange(6).reshape(2, 3).T,
        torch.ones(2, requires_grad=True),
    ],
)
def test_every_kind_of_tensor_survives(tmp_path: Path, value: torch.Tensor):
    path = tmp_path / "value"
    path.write_bytes(checkpoint_bytes(0, {"value": value}, {}))
    assert_same({"value": value.detach()}, dict(load_checkpoint(path).tensors))


@settings(max_examples=50, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_torn_checkpoint_is_passed_over(tmp_path_factory: pytest.TempPathFactory, share: float):
    folder = tmp_path_factory.mktemp("run")
    whole, torn = saved(folder, 1, 2)
    data = torn.read_bytes()
    torn.write_bytes(data[: int(share * len(data))])
    assert newest_whole(folder) == whole
    with pytest.raises(RunError, match=r"round-00002\.safetensors must be a whole"):
        load_checkpoint(torn)


@pytest.mark.parametrize("written", [{}, {"format": 0}, {"format": "1"}])
def test_a_checkpoint_of_another_format_is_refused(tmp_path: Path, written):
    header = json.dumps({"round": 3, "state": STATE, **written})
    path = tmp_path / "round-00003.safetensors"
    save_file(TENSORS, path, {"covey": header})
    format_number = written.get("format")
    with pytest.raises(
        RunError, match=f"of format 4, found {format_number!r}: .* have to be played again"
    ):
        load_checkpoint(path)


def test_thinning_keeps_the_first_the_powers_of_two_and_the_last_ten(tmp_path: Path):
    paths = saved(tmp_path, *range(30))
    thin(tmp_path, "all")
    assert len(list(tmp_path.iterdir())) == 30
    thin(tmp_path, "thin")
    kept_rounds = {0, 1, 2, 4, 8, 16, *range(20, 30)}
    assert set(tmp_path.iterdir()) == {paths[index] for index in kept_rounds}


def test_states_are_set_aside_from_a_round_on_however_often(tmp_path: Path):
    folder, aside = tmp_path / "states", tmp_path / "aside"
    set_aside_from(folder, 0, aside)
    assert not aside.exists()
    saved(folder, 0, 1, 2, 3)
    bits = (folder / "round-00003.safetensors").read_bytes()
    aside.mkdir()  # as if it had been killed after the first one
    (folder / "round-00002.safetensors").rename(aside / "round-00002.safetensors")
    for _ in range(2):
        set_aside_from(folder, 2, aside)
    assert rounds_in(folder) == (0, 1)
    assert rounds_in(aside) == (2, 3)
    assert (aside / "round-00003.safetensors").read_bytes() == bits


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_step_the_newest_checkpoint_is_whole(tmp_path: Path, every: int):
    words = [sys.executable, __file__, str(tmp_path), str(every)]
    subprocess.run(words, check=True)
    homes = sorted(tmp_path.iterdir(), key=lambda home: int(home.name))
    paths = []
    for home in homes:
        newest = newest_whole(home)
        paths.append(load_checkpoint(newest).round_index)
        assert_same(dict(load_checkpoint(newest).tensors), TENSORS)
    unfinished = [home for home in homes if list(home.glob("*.unfinished"))]
    assert paths == sorted(paths)  # the old one until a step, then the new one
    assert {*paths[:1], *paths[-2:]} == {1, 2}
    assert len(unfinished) > 5  # steps between opening and renaming
    for home in unfinished:
        saved(home, 2)
        assert len(list(home.iterdir())) == 2


def save_until(folder: Path, steps: int) -> None:
    """Save round 2, but die by SIGKILL at one call or return of what writes."""
    left = steps

    def count_down(frame: FrameType, _event: str, _argument: object) -> None:
        nonlocal left
        here = {one.f_code.co_filename for one in (frame, frame.f_back) if one}
        left -= bool(here & {checkpoints.__file__, atomic_io.__file__})
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count_down)
    saved(folder, 2)
    sys.setprofile(None)


def die_at_steps(folder: Path, every: int) -> None:
    """Leave in folder/N what is there when saving ends before its step N."""
    saved(folder / "0", 1)
    for steps in range(0, 1000, every):
        home = folder / str(steps)
        if steps:
            shutil.copytree(folder / "0", home)
            for rest in home.glob("*.unfinished"):
                rest.unlink()
        child = os.fork()
        if child == 0:
            save_until(home, steps)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return


if __name__ == "__main__":
    die_at_steps(Path(sys.argv[1]), int(sys.argv[2]))


SOURCES = Path(covey.__file__).parent


def unbounded(path: Path) -> list[str]:
    """Return the calls by which a module reads a whole file that is not covey's own."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [
        f"{path.relative_to(SOURCES)}:{call.lineno}"
        for call in called
        if isinstance(call, ast.Attribute)
        and call.attr in {"read_bytes", "read_text"}
        and not ast.unparse(call.value).startswith("files(")
    ]


def test_every_module_asks_the_bounded_reader():
    assert [call for path in SOURCES.rglob("*.py") for call in unbounded(path)] == []


@pytest.mark.parametrize("read", [read_bounded, file_hash])
def test_a_pipe_or_a_device_is_never_opened(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="must be a regular file"):
            read(path)
