// SPDX-License-Identifier: Apache-2.0
//
// A command that starts its own ranks: processes of this same program.

#ifndef CADRE_CLI_RELAUNCH_H
#define CADRE_CLI_RELAUNCH_H

#include <cadre/launch.h>

/**
 * Runs ranks as the options say and returns the command's exit status.  Their
 * argv is `argv`, ended by NULL; argv[0] becomes this program's file, argv[1]
 * is the command's name.
 *
 * A fault, refusal or damage of a rank is passed on, since the rank has said it
 * itself; anything else that went wrong is a failed rank, and said.
 */
int relaunch(const char **argv, cadre_launch_options options);

#endif // CADRE_CLI_RELAUNCH_H
