// SPDX-License-Identifier: Apache-2.0
//
// Standard error as a screen: a block of lines that is drawn again in place,
// and lines that scroll by above it.  Where standard error is no terminal, or
// the environment asks for plain text, there is no block and not one escape
// sequence.
//
// The cursor stays at the block's end and is never hidden, so that whatever
// ends the program leaves a terminal that can be used.
//
// Threads: any.

#ifndef CADRE_CLI_SCREEN_H
#define CADRE_CLI_SCREEN_H

#include <stdbool.h>

enum { SCREEN_ROWS = 3, SCREEN_LINE_BYTES = 512 };

/** Whether a block may be drawn: NO_COLOR, CI and TERM=dumb forbid it. */
bool screen_is_live(void);

/** Columns that a line of the block may have. */
int screen_columns(void);

/** Draws the block, over the one before. */
void screen_draw(char rows[SCREEN_ROWS][SCREEN_LINE_BYTES]);

/** Prints a line above the block, which is drawn again by the next draw. */
void screen_print(const char *line);

/** Leaves the block where it is; what comes stands below it. */
void screen_close(void);

#endif // CADRE_CLI_SCREEN_H
