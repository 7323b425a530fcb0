"""A change of one code file in a large image, rebuilt and pushed (CAGE 5.4.1: 0.2 s)."""

import json
from collections.abc import Callable

from block_images.made import Made
from common.figures import Section, median, spread
from common.paths import scratch

TIMES = 5
# "Well under a second".
MAX_SECONDS = 0.5
MIB = 1 << 20


def rebuilds(
    run: Callable[..., str], section: Section, image: Made, images: tuple[str, str]
) -> None:
    """`run` is the command line; `images` are the names of the base and of the result."""
    base, target = images
    build = ["image", "build", "rebuilt:v1", "--base", base, "--push", target, "-o", "json"]
    with scratch() as folder:
        code = folder / "code"
        image.write(code)
        rounds = []
        for number in range(TIMES + 1):
            with (code / "serve").open("a") as file:
                file.write(f"# {number}\n")
            rounds.append(json.loads(run(*build, "--code", code)))
    # The first push also uploads the base.
    changed = rounds[1:]
    for made in changed:
        if [layer["written"] for layer in made["layers"]][:-1].count(True):
            raise RuntimeError(f"more than the code was built: {made}")
    seconds = [made["seconds"] for made in changed]
    raw = sum(layer["raw_bytes"] for layer in changed[0]["layers"]) / MIB
    sent = median([made["sent"]["bytes"] for made in changed]) / 1024
    section.say(
        f"A line of code is added in an image of {raw:,.0f} MiB, which is built again and pushed:"
        f" {spread(seconds)} s, {sent:,.0f} KiB sent, {TIMES} samples. The link is not shaped."
    )
    section.promise(
        f"a change of code in the image *{image.title}*, built and pushed",
        f"at most {MAX_SECONDS} s",
        f"{median(seconds):.3g} s",
        median(seconds) <= MAX_SECONDS,
    )
    section.commands.append(f"snowmelt image build x --base {base} --code ./code --push {target}")
