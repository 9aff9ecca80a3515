#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_floors sees what is planted in a copy of the tree."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
COMPILER = os.environ.get("CC", "cc")


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = folder.name

    def plant(self, path, text):
        path = os.path.join(self.tree, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "a", encoding="utf-8") as f:
            f.write(text)

    def check(self, *arguments):
        done = subprocess.run(
            [sys.executable, os.path.join(ROOT, "tools", "check_floors"),
             "--root", self.tree, *arguments],
            stdout=subprocess.PIPE, text=True)
        return done.returncode, done.stdout

    def assert_found(self, place, words, *arguments):
        code, output = self.check(*arguments)
        self.assertEqual(code, 1, output)
        lines = [line for line in output.splitlines()
                 if line.startswith(place + ": ") and words in line]
        self.assertEqual(len(lines), 1, output)


class PlantedIncludes(Tree):
    """A copy of the real tree."""

    def setUp(self):
        super().setUp()
        for name in ("src", "include", "cli", "examples"):
            shutil.copytree(os.path.join(ROOT, name),
                            os.path.join(self.tree, name))

    def test_the_tree_as_it_is_passes(self):
        self.assertEqual(self.check(), (0, ""))

    def test_an_upward_include(self):
        self.plant("src/base/planted.c",
                   '// A comment.\n#include "transport/transport.h"\n')
        self.assert_found("src/base/planted.c:2", "must not look up")

    def test_a_sideways_include(self):
        self.plant("src/state/planted.h", '#include "rendezvous/place.h"\n')
        self.assert_found("src/state/planted.h:1", "both on floor 3")

    def test_a_public_header_counts_as_its_room(self):
        self.plant("src/transport/planted.c", "#include <cadre/group.h>\n")
        self.assert_found("src/transport/planted.c:1", "must not look up")

    def test_the_header_of_everything_counts_as_everything(self):
        self.plant("src/train/planted.c", "#include <cadre/cadre.h>\n")
        self.assertEqual(self.check(), (0, ""))
        self.plant("src/launch/planted.c", "#include <cadre/cadre.h>\n")
        self.assert_found("src/launch/planted.c:1", "both on floor 7")

    def test_libcadre_does_not_need_computing(self):
        self.plant("src/parallel/planted.c", '#include "nn/net.h"\n')
        self.assert_found("src/parallel/planted.c:1", "part of libcadre")

    def test_who_talks_does_not_know_who_computes(self):
        self.plant("src/optim/planted.h", "\n")
        self.plant("src/group/planted.c", '#include "optim/planted.h"\n')
        self.assert_found("src/group/planted.c:1", "which computes")

    def test_programs_use_public_headers_only(self):
        self.plant("cli/planted.c", '#include "base/alloc.h"\n')
        self.plant("examples/planted/planted.c", '#include "state/leaf.h"\n')
        self.assert_found("cli/planted.c:1", "public headers only")
        self.assert_found("examples/planted/planted.c:1",
                          "public headers only")

    def test_a_public_header_shows_public_headers_only(self):
        self.plant("include/cadre/engine.h", '#include "state/leaf.h"\n')
        code, output = self.check()
        self.assertEqual(code, 1)
        self.assertIn("a public header shows public headers only", output)

    def test_disguises(self):
        for number, text in enumerate((
                '#include "../transport/transport.h"\n',
                '# /* x */ include "transport/transport.h"\n',
                '#inc\\\nlude "transport/transport.h"\n',
                '%: include "transport/transport.h"\n',
                '/* " */ #include "transport/transport.h" // "\n',
                "#define PLACE <transport/transport.h>\n"
                "#include PLACE\n")):
            with self.subTest(text=text):
                name = f"src/base/planted{number}.inc"
                self.plant(name, text)
                code, output = self.check()
                self.assertEqual(code, 1)
                self.assertIn(name, output)

    def test_comments_and_strings_are_no_includes(self):
        self.plant("src/base/planted.c",
                   '/*\n#include "transport/transport.h"\n*/\n'
                   '// \\\n#include "transport/transport.h"\n'
                   'const char *text = "\\\n#include <cadre/group.h>";\n')
        self.assertEqual(self.check(), (0, ""))

    def test_a_room_on_no_floor(self):
        self.plant("src/attic/attic.h", "\n")
        self.assert_found("src/attic:1", "on no floor")

    def test_a_header_of_no_room(self):
        self.plant("include/cadre/planted.h", "\n")
        self.assert_found("include/cadre/planted.h:1", "no room is known")


class PlantedSymbols(Tree):
    """A tree of two small rooms, with objects."""

    def setUp(self):
        super().setUp()
        self.build = os.path.join(self.tree, "build")
        self.plant("include/cadre/status.h", "")
        for name in ("cli", "examples"):
            os.makedirs(os.path.join(self.tree, name))
        self.plant("src/transport/up.c",
                   "int cadre_up(void);\nint cadre_up(void) { return 1; }\n")
        self.plant("src/base/down.c",
                   "int cadre_down(void);\n"
                   "int cadre_down(void) { return 1; }\n")

    def compile(self):
        for room, name in (("transport", "up"), ("base", "down")):
            folder = os.path.join(self.build, "src", room, "CMakeFiles",
                                  f"room_{room}.dir")
            os.makedirs(folder)
            subprocess.run(
                [COMPILER, "-c",
                 os.path.join(self.tree, "src", room, name + ".c"), "-o",
                 os.path.join(folder, name + ".c.o")], check=True)

    def test_the_tree_as_it_is_passes(self):
        self.plant("src/transport/up.c",
                   "int cadre_down(void);\nint cadre_on(void);\n"
                   "int cadre_on(void) { return cadre_down(); }\n")
        self.compile()
        self.assertEqual(self.check(self.build), (0, ""))

    def test_an_upward_call_without_an_include(self):
        self.plant("src/base/down.c",
                   "int cadre_up(void);\nint cadre_on(void);\n"
                   "int cadre_on(void) { return cadre_up(); }\n")
        self.compile()
        self.assert_found("src/base/down.c:3", "must not look up", self.build)

    def test_a_source_that_is_not_built(self):
        self.compile()
        self.plant("src/base/forgotten.c", "\n")
        self.assert_found("src/base/forgotten.c:1", "is not built", self.build)


if __name__ == "__main__":
    unittest.main()
