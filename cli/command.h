// SPDX-License-Identifier: Apache-2.0
//
// The sub-commands of `cadre`, and the exit statuses they share (docs/cli.md).
//
// A command gets its own arguments: argv[0] is its name.  It returns the exit
// status of the process, and has said on standard error what went wrong; but
// what becomes of its standard output, main() sees to.

#ifndef CADRE_CLI_COMMAND_H
#define CADRE_CLI_COMMAND_H

enum {
    EXIT_DONE = 0,
    EXIT_FAULT = 1,       // an internal fault of ours, or output that is lost
    EXIT_REFUSED = 2,     // the request made no sense; nothing was started
    EXIT_RANK_FAILED = 3, // a rank failed or was lost
    EXIT_DAMAGED = 4,     // data or checkpoint damaged or not matching
    EXIT_SIGNALLED = 128, // and the signal's number
};

typedef struct command {
    const char *name;
    const char *summary;               // one line
    int (*run)(int argc, char **argv); // NULL: not built yet
} command;

int command_run(int argc, char **argv);
int command_train(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_report(int argc, char **argv);

#endif // CADRE_CLI_COMMAND_H
