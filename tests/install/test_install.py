#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program of a user's own, built against an installation and nothing else.

    test_install.py CMAKE BUILD_FOLDER CC
"""

import glob
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

CMAKE, BUILD, CC = sys.argv[1:4]
EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                        "..", "..", "examples")

PROGRAM = r"""
#include <cadre/cadre.h>
#include <stdio.h>

int main(void)
{
    cadre_group *world;
    if (cadre_init(NULL, &world) != CADRE_OK) {
        fprintf(stderr, "%s\n", cadre_error_text());
        return 1;
    }
    float x = (float)cadre_rank(world) + 1.0f;
    if (cadre_allreduce(world, &x, &x, 1, CADRE_F32, CADRE_SUM, NULL) !=
        CADRE_OK) {
        fprintf(stderr, "%s\n", cadre_error_text());
        return 1;
    }
    printf("%g of %d\n", (double)x, cadre_world_size(world));
    cadre_finalize(world);
    return 0;
}
"""

CMAKE_PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(cadre 0.1 REQUIRED)
add_executable(program program.c)
target_link_libraries(program PRIVATE cadre::cadre)
add_executable(trainer trainer.c)
target_link_libraries(trainer PRIVATE cadre::cadre_nn)
"""

TRAINER = r"""
#include <cadre/train.h>
#include <stdio.h>

int main(void)
{
    puts(cadre_recipe_name(0));
    return 0;
}
"""


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="cadre-install-")
        first = os.path.join(cls.folder, "first")
        subprocess.run([CMAKE, "--install", BUILD, "--prefix", first],
                       check=True, stdout=subprocess.DEVNULL)
        # An installation may be moved, also to where names have blanks.
        cls.prefix = os.path.join(cls.folder, "moved away")
        os.rename(first, cls.prefix)
        cls.lib = os.path.dirname(
            glob.glob(cls.prefix + "/**/libcadre.so", recursive=True)[0])
        cls.cadre = os.path.join(cls.prefix, "bin", "cadre")
        for name, text in (("program.c", PROGRAM), ("trainer.c", TRAINER),
                           ("CMakeLists.txt", CMAKE_PROJECT)):
            with open(os.path.join(cls.folder, name), "w") as f:
                f.write(text)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def run_it(self, *command, **environment):
        done = subprocess.run(
            command, cwd=self.folder, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120,
            env=dict(os.environ, **environment))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def check_program(self, program):
        search = {"LD_LIBRARY_PATH": self.lib}
        self.assertEqual(self.run_it(program, **search), "1 of 1\n")
        self.assertEqual(
            self.run_it(self.cadre, "run", "-n", "2", "--", program, **search),
            "3 of 2\n" * 2)

    def build_by_pkg_config(self, library, source):
        flags = shlex.split(self.run_it(
            "pkg-config", "--cflags", "--libs", library,
            PKG_CONFIG_PATH=os.path.join(self.lib, "pkgconfig")))
        program = os.path.join(self.folder, "by_pkg_config_" + library)
        self.run_it(CC, "-std=c17", "-Wall", "-Werror", source, *flags,
                    "-o", program)
        return program

    def test_pkg_config_builds_a_program_that_runs_on_two_ranks(self):
        self.check_program(self.build_by_pkg_config("cadre", "program.c"))

    def test_a_net_of_ones_own_needs_the_public_headers_alone(self):
        program = self.build_by_pkg_config(
            "cadre_nn", os.path.join(EXAMPLES, "04_own_net", "own_net.c"))
        search = {"LD_LIBRARY_PATH": self.lib}
        alone = self.run_it(program, **search)
        self.assertIn("parameters", alone)
        self.assertEqual(
            self.run_it(self.cadre, "run", "-n", "2", "--", program, **search),
            alone)

    def test_cmake_package(self):
        self.run_it(CMAKE, "-S", ".", "-B", "by_cmake",
                    "-DCMAKE_PREFIX_PATH=" + self.prefix,
                    "-DCMAKE_C_COMPILER=" + CC)
        self.run_it(CMAKE, "--build", "by_cmake")
        self.check_program(os.path.join(self.folder, "by_cmake", "program"))
        self.assertEqual(
            self.run_it(os.path.join(self.folder, "by_cmake", "trainer")),
            "mlp-fashion\n")

    def test_the_command_finds_its_library(self):
        self.assertIn("mlp-fashion", self.run_it(self.cadre, "train", "--list"))

    def test_nothing_installed_knows_where_it_was_built(self):
        for where, _, names in os.walk(self.prefix):
            for name in names:
                path = os.path.join(where, name)
                if name.endswith((".so", ".0")) or os.path.islink(path):
                    continue
                with open(path, "rb") as f:
                    content = f.read()
                if content.startswith(b"\x7fELF"):
                    continue  # debug information names sources
                self.assertNotIn(BUILD.encode(), content, path)
                self.assertNotIn(self.folder.encode(), content, path)

    def test_every_option_is_in_manual_and_completion(self):
        def read(*path):
            with open(os.path.join(self.prefix, "share", *path)) as f:
                return f.read()

        bash = read("bash-completion", "completions", "cadre")
        self.run_it("bash", "-n", os.path.join(
            self.prefix, "share", "bash-completion", "completions", "cadre"))
        zsh = read("zsh", "site-functions", "_cadre")
        overview = self.run_it(self.cadre, "--help")
        n_options = 0
        for line in overview.splitlines():
            words = line.split()
            if (not line.startswith("  ") or line.endswith("built yet)") or
                    words[0] == "cadre"):
                continue
            manual = read("man", "man1", f"cadre-{words[0]}.1")
            self.assertIn(f"cadre\\-{words[0]}", read("man", "man1", "cadre.1"))
            for option in self.run_it(
                    self.cadre, words[0], "--help").splitlines():
                if option.startswith("  -"):
                    name = option.split()[0]
                    self.assertIn("\\fB" + name.replace("-", "\\-") + "\\fR",
                                  manual)
                    self.assertIn(name, bash)
                    self.assertIn(name, zsh)
                    n_options += 1
        self.assertGreater(n_options, 15)

    def test_completion_completes(self):
        script = os.path.join(self.prefix, "share", "bash-completion",
                              "completions", "cadre")

        def complete(*words):
            line = " ".join(f"'{word}'" for word in words)
            return self.run_it(
                "bash", "-c",
                f"compopt() {{ :; }}; . '{script}'; COMP_WORDS=({line}); "
                f"COMP_CWORD={len(words) - 1}; _cadre; "
                'printf "%s\\n" "${COMPREPLY[@]}"').split()

        self.assertEqual(complete("cadre", "tr"), ["train"])
        self.assertEqual(complete("cadre", "train", "ml"), ["mlp-fashion"])
        self.assertEqual(complete("cadre", "train", "--ste"), ["--steps"])
        self.assertIn("optim.lr=", complete("cadre", "train", "--set", "optim"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
