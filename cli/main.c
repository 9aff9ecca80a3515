// SPDX-License-Identifier: Apache-2.0
//
// cadre: finds the sub-command that argv[1] names and runs it.

#include "command.h"
#include "log_lines.h"
#include "nearest.h"

#include <cadre/cadre.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const command commands[] = {
    {"run", "start a program as N ranks and watch over them", command_run},
    {"train", "train a built-in recipe or a YAML file", command_train},
    {"eval", "evaluate a finished run's model on the test split", command_eval},
    {"generate", "write text from a trained model", command_generate},
    {"bench", "measure collectives", command_bench},
    {"plan", "predict memory and time before a run", NULL},
    {"doctor", "say what was found on this host and what is missing",
        command_doctor},
    {"report", "build the report of a run again", command_report},
};
enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static int help(void)
{
    printf("usage: cadre COMMAND [options]\n\n");
    for (int i = 0; i < N_COMMANDS; i++) {
        printf("  %-10s %s%s\n", commands[i].name, commands[i].summary,
            commands[i].run == NULL ? " (not built yet)" : "");
    }
    printf("\n`cadre COMMAND --help` says more.  For example:\n"
           "  cadre run -n 2 ./my_program\n"
           "  cadre train mlp-fashion -n 2\n");
    return EXIT_DONE;
}

static int version(void)
{
    printf("cadre %d.%d.%d\n", CADRE_VERSION_MAJOR, CADRE_VERSION_MINOR,
        CADRE_VERSION_PATCH);
    return EXIT_DONE;
}

static int unknown(const char *word)
{
    const char *names[N_COMMANDS];
    for (int i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i].name;
    }
    fprintf(stderr,
        "cadre: no command is called '%s'; did you mean '%s'?  "
        "`cadre --help` lists all\n",
        word, nearest(word, names, N_COMMANDS));
    return EXIT_REFUSED;
}

// A closed standard stream would hand its number to the next descriptor that
// is opened, and output would end up there.
static void hold_standard_streams(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO) {
        close(fd);
    }
}

static int run_command(int argc, char **argv)
{
    if (argc < 2) {
        help();
        return EXIT_REFUSED;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        return help();
    }
    if (strcmp(word, "--version") == 0) {
        return version();
    }
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(word, commands[i].name) != 0) {
            continue;
        }
        if (commands[i].run == NULL) {
            fprintf(stderr, "cadre: '%s' is not built yet\n", word);
            return EXIT_REFUSED;
        }
        return commands[i].run(argc - 1, argv + 1);
    }
    return unknown(word);
}

// A thread that holds signals back hears of it by this alone.
static bool has_no_reader(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, 0) > 0 && (p.revents & POLLERR) != 0;
}

// Whether all that was printed has left this process; else says what is lost,
// unless nobody wanted it.
static int output_status(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && ferror(stdout) == 0) {
        return EXIT_DONE;
    }
    if (errno == EPIPE || has_no_reader(STDOUT_FILENO)) {
        return EXIT_SIGNALLED + SIGPIPE;
    }
    char reason[128] = "a write failed";
    if (errno != 0) {
        (void)strerror_r(errno, reason, sizeof(reason));
    }
    fprintf(stderr, "cadre: cannot write to standard output: %s\n", reason);
    return EXIT_FAULT;
}

int main(int argc, char **argv)
{
    hold_standard_streams();
    log_lines_show(CADRE_LOG_WARN);
    int status = run_command(argc, argv);
    int of_output = output_status();
    return status != EXIT_DONE ? status : of_output;
}
