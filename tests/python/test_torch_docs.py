"""test_torch_docs.py - the blocks of docs/python.md and of the READMEs run, one after the other, and so does the example."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

import torch
from torch_case import Case

import lacuna

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


def blocks(path):
    """[(line, language, text)] of a page's fenced blocks."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        text = file.read()
    return [(text.count("\n", 0, m.start()) + 2, m[1], m[2]) for m in re.finditer(r"(?ms)^```(\w+)\n(.*?)^```$", text)]


class Pages(Case):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        self.program = os.environ.get("LACUNA")
        if self.program:
            self.program = os.path.abspath(self.program)
        os.chdir(folder.name)

    def run_page(self, path, names):
        ran = 0
        for line, language, text in blocks(path):
            if language == "python":
                code = compile("\n" * (line - 1) + text, path, "exec")
                with open(os.devnull, "w") as nothing:
                    sys.stdout, kept = nothing, sys.stdout
                    try:
                        exec(code, names)
                    finally:
                        sys.stdout = kept
                ran += 1
            elif language == "sh" and path == "docs/python.md":
                for words in (shlex.split(one, comments=True) for one in text.splitlines()):
                    if words[:1] == ["lacuna"]:
                        self.assertTrue(self.program, "LACUNA names no program")
                        subprocess.run([self.program, *words[1:]], check=True, capture_output=True)
                        ran += 1
        return ran

    def test_python(self):
        names = {"__name__": "page"}
        self.assertEqual(self.run_page("docs/python.md", names), 12)
        self.assertEqual(str(names["layer"].pattern), "2:4")
        self.assertTrue(all(name in os.listdir() for name in ("layer.safetensors", "sparse.safetensors", "pruned.safetensors")))
        self.assertEqual([layer.name for layer in names["report"].pruned if "linear" not in layer.name], [])

    def test_readmes(self):
        for path in ("README.md", "python/README.md"):
            torch.manual_seed(1)
            model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
            names = {"model": model, "example": torch.randn(4, 64), "w": torch.randn(32, 64).numpy(), "x": torch.randn(3, 64).numpy()}
            self.assertEqual(self.run_page(path, names), 1, path)
            self.assertEqual(len(names["report"].pruned), 2)

    def test_example(self):
        script = [sys.executable, "-B", os.path.join(ROOT, "examples", "sparse_mlp.py"), "--width", "256", "--steps", "120"]
        package = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(os.path.abspath(lacuna.__file__)))}
        said = subprocess.run(script, check=True, capture_output=True, text=True, env=package).stdout
        right = {step: float(share) for step, share in re.findall(r"(?m)^(\w+)[ a-z]* +([\d.]+)% right$", said)}
        self.assertEqual(list(right), ["dense", "pruned", "trained", "compressed"])
        self.assertGreater(right["dense"], 80)
        self.assertGreater(right["trained"], right["dense"] - 5)
        self.assertAlmostEqual(right["compressed"], right["trained"], delta=0.2)
        self.assertIn("the model", said)


if __name__ == "__main__":
    unittest.main()
