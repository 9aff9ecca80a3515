#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cadre run: statuses, sentences, signals; nobody outlives the launcher.

    test_run.py CADRE RANK_PROGRAM [PATIENCE]

PATIENCE: times that the end of a job may take longer than is promised.
"""

import os
import pathlib
import pty
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import harness

RANK_PROGRAM = os.path.abspath(sys.argv[2])
PROMISED_S = 2 * (int(sys.argv[3]) if len(sys.argv) > 3 else 1)
LIMIT_S = 60


def is_alive(pid):
    """True while it runs; one that only waits to be taken note of does not."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


def wait_until(condition, limit_s=LIMIT_S):
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


class RunTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cadre-run-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_cadre(self, *arguments, **environ):
        return subprocess.run(
            [harness.CADRE, "run", *map(str, arguments)], timeout=LIMIT_S,
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            env=harness.environment(**environ))

    def start(self, command, **environ):
        process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=harness.environment(**environ))
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.communicate()

    def start_run(self, n, *arguments):
        """A job under way, and the process numbers of its ranks."""
        launcher = self.start([harness.CADRE, "run", "-n", n, RANK_PROGRAM,
                               f"pids={self.folder}/pid", *arguments])
        return launcher, self.pids(n)

    def pids(self, n):
        files = [self.folder / f"pid.{r}" for r in range(n)]
        self.assertTrue(wait_until(lambda: all(f.exists() for f in files)))
        return [int(f.read_text()) for f in files]


class Requests(RunTest):
    def refused(self, status, words, *arguments):
        done = self.run_cadre(*arguments)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(words, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_makes_no_sense(self):
        self.refused(2, "-n wants a whole number", "-n", "0", "true")
        self.refused(2, "'abc'", "-n", "abc", "true")
        self.refused(2, "'-3'", "-n", "-3", "true")
        self.refused(2, "'1e3'", "-np", "1e3", "true")
        self.refused(2, "-n wants a value", "-n")
        self.refused(2, "no program", "-n", "2")
        self.refused(2, "no program", "-n", "2", "--")
        self.refused(2, "did you mean '--threads'", "--thread", "2", "true")
        self.refused(2, "--tag takes no value", "--tag=yes", "true")
        self.refused(2, "'0'", "--threads", "0", "true")
        self.refused(2, "--bind wants 'core' or 'none'", "--bind", "socket",
                     "true")
        self.refused(2, "log_dir is empty", "-n", "1", "--log-dir", "", "true")

    def test_is_not_built_yet(self):
        for name in ("--nnodes", "--node-rank", "--node_rank", "--rdzv",
                     "--hosts", "--hostfile", "-H", "-x",
                     "--max-restarts"):
            self.refused(2, "not built yet", name, "1", "true")

    def test_cannot_be_run(self):
        self.refused(127, "no-such-program", "-n", "2", "no-such-program")
        self.refused(126, "/etc/passwd", "-n", "2", "/etc/passwd")
        self.refused(2, "/dev/null", "-n", "1", "--log-dir", "/dev/null/logs",
                     "true")

    def test_has_help_of_one_screen(self):
        done = self.run_cadre("--help")
        self.assertEqual(done.returncode, 0)
        lines = done.stdout.splitlines()
        self.assertLessEqual(len(lines), 24)
        self.assertLessEqual(max(map(len, lines)), 80)
        for words in ("-n N", "--threads", "--log-dir", "--tag", "CADRE_STORE",
                      "CADRE_SECRET_FD", "cadre run -n 2"):
            self.assertIn(words, done.stdout)
        self.assertNotIn("--nnodes", done.stdout)


class Runs(RunTest):
    def test_takes_all_spellings(self):
        for arguments in (("-n", 3), ("-n=3",), ("-np", 3),
                          ("--nproc-per-node", 3), ("--nproc_per_node=3",)):
            done = self.run_cadre(*arguments, "--", RANK_PROGRAM)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(sorted(done.stdout.splitlines()),
                             [f"rank {r} of 3 is done" for r in range(3)])
            self.assertEqual(done.stderr, "")

    def test_leaves_options_of_the_program_alone(self):
        done = self.run_cadre("-n", 1, "echo", "-n", "--tag", "--", "x")
        self.assertEqual(done.stdout, "--tag -- x")

    def test_counts_cores_and_says_so(self):
        done = self.run_cadre("sh", "-c", "echo $WORLD_SIZE")
        n = len(os.sched_getaffinity(0))
        self.assertEqual(done.stdout, f"{n}\n" * n)
        self.assertEqual(done.stderr, f"cadre: {n} ranks, one per core\n")

    def test_shares_cores_among_ranks(self):
        done = self.run_cadre("-n", 64, "sh", "-c", "echo $OMP_NUM_THREADS")
        n = max(1, len(os.sched_getaffinity(0)) // 64)
        self.assertEqual(done.stdout, f"{n}\n" * 64)

    def test_keeps_a_log_per_rank(self):
        logs = self.folder / "logs"
        done = self.run_cadre("-n", 2, "--log-dir", logs, "--tag", RANK_PROGRAM)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(p.name for p in logs.iterdir()),
                         ["rank-0.log", "rank-1.log"])
        for r in range(2):
            self.assertEqual((logs / f"rank-{r}.log").read_text(),
                             f"rank {r} of 2 is done\n")
            self.assertIn(f"[{socket.gethostname()}:{r}] rank {r} of 2",
                          done.stdout)

    def test_passes_on_the_status_of_the_first_that_fails(self):
        done = self.run_cadre("-n", 4, RANK_PROGRAM, "status=2:41")
        self.assertEqual(done.returncode, 41)
        self.assertRegex(done.stderr, r"(?m)^cadre: rank 2 \(host \S+, pid "
                                      r"\d+\) exited with status 41$")
        done = self.run_cadre("-n", 2, "sh", "-c",
                              "test $RANK = 0 && sleep 60; echo oh >&2; exit 5")
        self.assertEqual(done.returncode, 5)
        self.assertIn("    | oh\n", done.stderr)
        done = self.run_cadre("-n", 2, "sh", "-c",
                              "test $RANK = 1 && kill -SEGV $$; sleep 60")
        self.assertEqual(done.returncode, 139)
        self.assertIn("died: killed by SIGSEGV", done.stderr)

    def test_takes_an_early_end_for_a_failure(self):
        done = self.run_cadre("-n", 3, RANK_PROGRAM, "early=1")
        self.assertEqual(done.returncode, 3)
        self.assertEqual(done.stderr.count(
            "finished (exit status 0) while others still"), 3, done.stderr)

    def test_shows_a_terminal_to_rank_0_only(self):
        """So that a progress line still works; its output is as it was."""
        ours, theirs = pty.openpty()
        script = ("test -t 2 && echo $RANK has a terminal >&2; "
                  "test -t 1 && echo $RANK prints to one; exit 0")
        done = subprocess.run(
            [harness.CADRE, "run", "-n", "2", "sh", "-c", script],
            stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
            timeout=LIMIT_S, env=harness.environment())
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:
            pass  # how a terminal ends
        os.close(ours)
        self.assertEqual(done.returncode, 0)
        self.assertIn(b"0 has a terminal", shown)
        self.assertIn(b"0 prints to one", shown)
        self.assertNotIn(b"1 has a terminal", shown)
        self.assertNotIn(b"1 prints to one", shown)


class Faults(RunTest):
    def test_a_rank_is_killed(self):
        launcher, pids = self.start_run(4, "steps=-1")
        began = time.monotonic()
        os.kill(pids[2], signal.SIGKILL)
        _, errors = launcher.communicate(timeout=LIMIT_S)
        self.assertLess(time.monotonic() - began, PROMISED_S)
        self.assertEqual(launcher.returncode, 137, errors)
        self.assertEqual(errors.count(f"pid {pids[2]}) died: killed by SIGKILL"),
                         4, errors)
        self.assertFalse(any(map(is_alive, pids)))

    def test_a_rank_is_stopped(self):
        launcher, pids = self.start_run(4, "steps=-1", "timeout=2000")
        os.kill(pids[1], signal.SIGSTOP)
        _, errors = launcher.communicate(timeout=LIMIT_S)
        self.assertEqual(launcher.returncode, 137, errors)
        self.assertEqual(errors.count(
            f"pid {pids[1]}) gave no sign of life for 2000 ms"), 4, errors)
        self.assertFalse(any(map(is_alive, pids)))

    def test_the_launcher_is_killed(self):
        for rank_is_busy in (False, True):
            launcher, pids = self.start_run(
                4, "steps=-1", "pause=60000" if rank_is_busy else "pause=0")
            launcher.kill()
            self.assertTrue(wait_until(
                lambda: not any(map(is_alive, pids)), limit_s=PROMISED_S))
            for r in range(4):
                (self.folder / f"pid.{r}").unlink()

    def test_is_interrupted(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            launcher, pids = self.start_run(2, "steps=-1")
            launcher.send_signal(number)
            _, errors = launcher.communicate(timeout=LIMIT_S)
            self.assertEqual(launcher.returncode, status, errors)
            self.assertIn("a second one kills them", errors)
            self.assertFalse(any(map(is_alive, pids)))
            for r in range(2):
                (self.folder / f"pid.{r}").unlink()

    def test_nobody_reads_any_more(self):
        script = "echo $$ > $0.$RANK; while :; do echo line; sleep 0.01; done"
        for options, redirected in (((), ""), (("--tag",), ""), ((), " >&2")):
            launcher = self.start(
                [harness.CADRE, "run", "-n", 2, *options, "sh", "-c",
                 f"({script}){redirected}", self.folder / "pid"])
            pids = self.pids(2)
            heard = launcher.stderr if redirected else launcher.stdout
            self.assertIn("line", heard.readline())
            heard.close()
            began = time.monotonic()
            # Nobody hears the sentence either if it goes the same way.
            launcher.wait(timeout=LIMIT_S)
            self.assertLess(time.monotonic() - began, PROMISED_S)
            self.assertIn(abs(launcher.returncode), (141, signal.SIGPIPE))
            if not redirected:
                errors = launcher.stderr.read()
                self.assertEqual(errors.count("\n"), 1, errors)
                # Rank 0 may have found out itself.
                self.assertRegex(errors, "nobody reads the ranks' standard "
                                 "output any more|rank 0 .*(SIGPIPE|141)")
            self.assertFalse(any(map(is_alive, pids)))
            for r in range(2):
                (self.folder / f"pid.{r}").unlink()

    def test_output_that_is_not_taken_is_an_error(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run(
                [harness.CADRE, "run", "-n", "2", "--tag", "echo", "line"],
                stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE,
                text=True, timeout=LIMIT_S, env=harness.environment())
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("standard output could not be written: No space left",
                      done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_a_second_signal_kills(self):
        script = "trap 'touch $0.$RANK' INT; touch $0; while :; do sleep 0.01; done"
        mark = self.folder / "mark"
        launcher = self.start(
            [harness.CADRE, "run", "-n", 2, "sh", "-c", script, mark])
        self.assertTrue(wait_until(mark.exists))
        time.sleep(0.1)  # both have set their traps
        launcher.send_signal(signal.SIGINT)
        self.assertTrue(wait_until(lambda: all(
            (self.folder / f"mark.{r}").exists() for r in range(2))))
        launcher.send_signal(signal.SIGINT)
        _, errors = launcher.communicate(timeout=LIMIT_S)
        self.assertEqual(launcher.returncode, 130, errors)
        self.assertIn("the ranks are killed", errors)


class OtherLaunchers(RunTest):
    """Ranks that others start, with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT."""

    @staticmethod
    def free_port(host):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as s:
            s.bind((host, 0))
            return s.getsockname()[1]

    def start_ranks(self, n, host, *arguments):
        self.port = self.free_port(host)
        return [self.start([RANK_PROGRAM, *arguments], RANK=str(r),
                           WORLD_SIZE=str(n), MASTER_ADDR=host,
                           MASTER_PORT=str(self.port))
                for r in reversed(range(n))][::-1]

    def test_meets_over_both_families(self):
        for host in ("127.0.0.1", "::1"):
            try:
                ranks = self.start_ranks(3, host)
            except OSError as error:
                self.skipTest(f"no {host} here: {error}")
            for r, rank in enumerate(ranks):
                output, errors = rank.communicate(timeout=LIMIT_S)
                self.assertEqual(rank.returncode, 0, errors)
                self.assertEqual(output, f"rank {r} of 3 is done\n")

    def test_all_name_the_rank_that_is_killed(self):
        for victim in range(3):
            ranks = self.start_ranks(
                3, "127.0.0.1", "steps=-1", f"pids={self.folder}/pid")
            self.pids(3)
            ranks[victim].kill()
            for r, rank in enumerate(ranks):
                _, errors = rank.communicate(timeout=LIMIT_S)
                if r != victim:
                    self.assertEqual(rank.returncode, 3, errors)
                    self.assertIn(f"rank {victim}", errors)
            for r in range(3):
                (self.folder / f"pid.{r}").unlink()

    def test_all_name_the_rank_that_is_stopped(self):
        for victim, name in ((1, "rank 1 (host"), (0, "rank 0, where the")):
            ranks = self.start_ranks(3, "127.0.0.1", "steps=-1", "timeout=2000",
                                     f"pids={self.folder}/pid")
            pids = self.pids(3)
            os.kill(pids[victim], signal.SIGSTOP)
            for r in {0, 1, 2} - {victim}:
                _, errors = ranks[r].communicate(timeout=LIMIT_S)
                self.assertEqual(ranks[r].returncode, 3, errors)
                self.assertIn(name, errors)
                self.assertIn("gave no sign of life for 2000 ms", errors)
            for r in range(3):
                (self.folder / f"pid.{r}").unlink()

    def test_meets_with_more_ranks_than_may_wait_at_once(self):
        for r, rank in enumerate(self.start_ranks(70, "127.0.0.1", "steps=1")):
            output, errors = rank.communicate(timeout=LIMIT_S)
            self.assertEqual(rank.returncode, 0, errors)
            self.assertEqual(output, f"rank {r} of 70 is done\n")

    def test_nobody_listens_while_the_ranks_work(self):
        ranks = self.start_ranks(3, "127.0.0.1", "steps=200", "pause=5",
                                 f"pids={self.folder}/pid")
        self.pids(3)
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", self.port))
        for rank in ranks:
            _, errors = rank.communicate(timeout=LIMIT_S)
            self.assertEqual(rank.returncode, 0, errors)
            self.assertEqual(errors, "")

    def one_rank(self, words, **environ):
        rank = self.start([RANK_PROGRAM, "timeout=50"], **environ)
        _, errors = rank.communicate(timeout=LIMIT_S)
        self.assertEqual(rank.returncode, 3)
        self.assertIn(words, errors)
        self.assertEqual(errors.count("\n"), 1, errors)

    def test_names_what_is_wrong_in_the_environment(self):
        self.one_rank("RANK is 'abc'", RANK="abc", WORLD_SIZE="2")
        self.one_rank("RANK is 5, but WORLD_SIZE is 2", RANK="5",
                      WORLD_SIZE="2")
        self.one_rank("RANK is not", WORLD_SIZE="2")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            self.one_rank("given by MASTER_ADDR and MASTER_PORT", RANK="0",
                          WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=str(s.getsockname()[1]))
        self.one_rank("rank 1 did not join in time", RANK="0", WORLD_SIZE="2",
                      MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(self.free_port("127.0.0.1")))


class Membership(RunTest):
    """Who may join the ranks that others start, and who may not."""

    def setUp(self):
        super().setUp()
        self.port = OtherLaunchers.free_port("127.0.0.1")

    def rank(self, rank, world_size, *arguments, **environ):
        return self.start([RANK_PROGRAM, *arguments], RANK=str(rank),
                          WORLD_SIZE=str(world_size), MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=str(self.port), **environ)

    def secret(self, name):
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_bytes(os.urandom(32))
        return str(path)

    def done(self, *ranks):
        """All have finished and said nothing else; what they said on errors."""
        said = ""
        for rank in ranks:
            output, errors = rank.communicate(timeout=LIMIT_S)
            self.assertEqual(rank.returncode, 0, errors)
            self.assertIn(" is done", output)
            said += errors
        return said

    def fails(self, rank, words):
        _, errors = rank.communicate(timeout=LIMIT_S)
        self.assertEqual(rank.returncode, 3)
        self.assertIn(words, errors)
        self.assertEqual(errors.count("\n"), 1, errors)

    def connect(self):
        """A stranger's connection, once rank 0 listens."""
        sockets = []

        def connected():
            try:
                sockets.append(socket.create_connection(
                    ("127.0.0.1", self.port), timeout=LIMIT_S))
            except ConnectionRefusedError:
                return False
            return True

        self.assertTrue(wait_until(connected))
        self.addCleanup(sockets[0].close)
        return sockets[0]

    def test_who_has_not_the_secret_does_not_join(self):
        right, wrong = self.secret("right"), self.secret("wrong")
        first = self.rank(0, 2, "log=1", CADRE_SECRET_FILE=right)
        self.fails(self.rank(1, 2, CADRE_SECRET_FILE=wrong),
                   "it does not know this job's secret")
        self.fails(self.rank(1, 2), "has it got a secret (CADRE_SECRET_FILE)")
        self.fails(self.rank(1, 2, CADRE_AUTH="none"), "closed the connection")
        second = self.rank(1, 2, CADRE_SECRET_FILE=right)
        self.assertRegex(self.done(first, second),
                         r"\A.*closed a connection: it has not proved .*\n\Z")

    def test_a_secret_comes_by_descriptor(self):
        ranks = []
        for r in range(2):
            ours, theirs = os.pipe()
            os.write(theirs, b"x" * 32)
            os.close(theirs)
            ranks.append(subprocess.Popen(
                [RANK_PROGRAM], stdin=ours, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
                env=harness.environment(
                    RANK=str(r), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                    MASTER_PORT=str(self.port), CADRE_SECRET_FD="0")))
            self.addCleanup(self.end, ranks[-1])
            os.close(ours)
        self.assertEqual(self.done(*ranks), "")

    def test_a_secret_file_is_this_users_alone(self):
        path = self.secret("open")
        os.chmod(path, 0o644)
        self.fails(self.rank(1, 2, CADRE_SECRET_FILE=path), "has mode 0644")
        self.fails(self.rank(1, 2, CADRE_SECRET_FILE="/no/such"), "/no/such")
        self.fails(self.rank(1, 2, CADRE_AUTH="all"), "CADRE_AUTH is 'all'")

    def test_who_proves_nothing_is_warned_of(self):
        said = self.done(*(self.rank(r, 3, "log=1", CADRE_AUTH="none")
                           for r in range(3)))
        self.assertRegex(said, r"\A.*CADRE_AUTH=none: whoever .*\n\Z")

    def test_strangers_disturb_nobody(self):
        """Until the last rank comes; no word to them, one log line of all."""
        first, second = self.rank(0, 3, "log=1"), self.rank(1, 3, "log=1")
        slow, slowly = self.connect(), [bytes([b]) for b in b"CDA1\1\0\0\0"]
        for said in (b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 5000,
                     b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                     b"CDH2\x01\0\0\0\xff\xff\xff\xff", b"\xff" * 8,
                     b"CDA1" + b"\xff" * 76, os.urandom(300)):
            stranger = self.connect()
            slow.send(slowly.pop(0))
            try:
                stranger.sendall(said)
                if not said:
                    stranger.shutdown(socket.SHUT_WR)
                self.assertEqual(stranger.recv(1), b"")
            except ConnectionError:
                pass  # closed before all was read
        idle = [self.connect() for _ in range(80)]
        third = self.rank(2, 3)
        self.assertRegex(self.done(first, second, third),
                         r"\A.*hub: closed a connection: .*\n\Z")
        self.assertEqual(len(idle), 80)


if __name__ == "__main__":
    harness.main()
