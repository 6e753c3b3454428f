"""test_readme.py - a stranger who types the README's `lacuna` commands, one after the other in one folder, gets what it promises."""

import os
import re
import shlex
import unittest

from support import Case, gaussian, write_safetensors

README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "README.md")


def commands():
    """The lines of the README's shell blocks that begin with `lacuna`, without their comments."""
    with open(README, encoding="utf-8") as file:
        blocks = re.findall(r"(?ms)^```sh\n(.*?)^```$", file.read())
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    return [words[1:] for words in lines if words[:1] == ["lacuna"]]


class Readme(Case):
    def test_commands(self):
        tensors, inputs = {}, {}
        for name, rows, cols in [("embed", 40, 64), ("b.0.up", 256, 192), ("b.0.down", 192, 256)]:
            tensors[name + ".weight"] = ("F32", [rows, cols], gaussian(rows, cols, rows))
            inputs[name + ".input"] = ("F32", [32, cols], gaussian(32, cols, cols))
        write_safetensors(self.path("model.safetensors"), tensors)
        write_safetensors(self.path("inputs.safetensors"), inputs)
        known = commands()
        self.assertEqual([words[0] for words in known], ["devices", "prune", "info", "verify", "explain", "bench", "prune", "prune"])
        for words in known:
            # Layers this small gain less; and it is the command that is tested, not the machine.
            words = ["speedup=1.1" if word == "speedup=2" else word for word in words]
            if words[0] == "bench":
                words += ["--min-time", "0.01", "--baseline", "none"]
            out, _ = self.run_lacuna(*words)
            self.assertNotEqual(out, "", words)
        made = ["chosen.safetensors", "corrected.safetensors", "inputs.safetensors", "model.safetensors", "report.html", "sparse.safetensors"]
        self.assertEqual(self.files(), made)


if __name__ == "__main__":
    unittest.main()
