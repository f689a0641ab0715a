"""The demo image: about 150 MB in six layers, so that a throttled pull of it is worth watching."""

from typing import Final

from tests.rig.images.layers import Layer
from tests.rig.images.recipe import ImageRecipe

_GREETING: Final = b"""#!/bin/sh
echo "Hello from $(hostname), running as $(id -un) on $(uname -sm)."
echo "This image was $(du -sm /data | cut -f1) MB of random bytes in five layers."
for step in 1 2 3; do
    echo "step $step of 3"
    sleep 0.3
done
echo "All done."
"""


def demo_image() -> ImageRecipe:
    """Six layers of very different sizes; the command prints a few lines and ends with 0 after a second."""
    base = Layer.busybox(files={"bin/hello": _GREETING}, executables=frozenset({"bin/hello"}))
    sizes_mb = (64.0, 40.0, 24.0, 16.0, 5.0)
    filled = [Layer.random(mb=mb, seed=number) for number, mb in enumerate(sizes_mb, start=1)]
    return ImageRecipe(layers=(base, *filled), cmd=("hello",))
