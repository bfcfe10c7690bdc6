"""What a page that is open costs a run: `make slowdown`.

A run of `examples/cifar-small.toml` is played while its page is followed as a browser
follows it, and both processes' processor time is told: a run can be slowed by no more than
the server takes from it. Time by the clock says less, on a machine that does other things.
"""

import http.cookiejar
import os
import re
import resource
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

SETTINGS = ("method.name=fedavg", "rounds=6", "population.audit_examples=200")
COVEY = (sys.executable, "-m", "covey")


def main() -> None:
    """Play the run, follow it, and print what each took."""
    with (
        TemporaryDirectory() as folder,
        subprocess.Popen(
            (*COVEY, "serve", folder, "--port", "0"), stdout=subprocess.PIPE, text=True
        ) as server,
    ):
        assert server.stdout is not None
        link = server.stdout.readline().split()[-1]
        over, pages = Event(), list[int]()
        follower = Thread(target=follow, args=(link, over, pages))
        before = seconds_of(server.pid)
        follower.start()
        played = play(Path(folder, "run"))
        served = seconds_of(server.pid) - before
        over.set()
        follower.join()
        server.terminate()
    sys.stdout.write(
        f"the run took {played:.1f} s of processor, the server {served:.2f} s for "
        f"{len(pages)} pages: {served / played:.1%} of the run's\n"
    )


def play(out: Path) -> float:
    """Play the run to its end, and return its processor time, with its workers'."""
    before = children_seconds()
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    run = (*COVEY, "run", "examples/cifar-small.toml", *sets, "--out", str(out))
    subprocess.run((*run, "--quiet"), check=True, stdout=subprocess.DEVNULL)
    return children_seconds() - before


def follow(link: str, over: Event, pages: list[int]) -> None:
    """Load the run's page, and its new pictures, whenever the server says that it changed."""
    pictures = set[str]()
    cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    browser = urllib.request.build_opener(cookies)
    browser.open(link).close()
    while not over.is_set():
        with browser.open(urllib.parse.urljoin(link, "/")) as listed:
            matched = re.search(r'href="(/runs/[^"/?]+)"', listed.read().decode())
        if matched is None:
            time.sleep(1)
            continue
        page = urllib.parse.urljoin(link, matched[1])
        with browser.open(f"{page}/events") as changes:
            for line in changes:
                if over.is_set():
                    return
                if line.startswith(b"event: changed"):
                    with browser.open(page) as answer:
                        text = answer.read().decode()
                    pages.append(len(text))
                    for source in {*re.findall(r'<img src="([^"]+)"', text)} - pictures:
                        pictures.add(source)
                        browser.open(urllib.parse.urljoin(page, source)).close()


def children_seconds() -> float:
    """Return the processor time of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds_of(process: int) -> float:
    """Return the processor time of a process that goes on (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
