// SPDX-License-Identifier: Apache-2.0

#include "screen.h"

#include "stop.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { USUAL_COLUMNS = 80, BLOCK_BYTES = SCREEN_ROWS * SCREEN_LINE_BYTES + 64 };

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static bool drawn;       // the cursor stands at a block's end; guarded by mu
static int signal_shown; // the answer to it was below the block; guarded by mu

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0';
}

bool screen_is_live(void)
{
    const char *terminal = getenv("TERM");
    return isatty(STDERR_FILENO) == 1 && terminal != NULL &&
           strcmp(terminal, "dumb") != 0 && !is_set("NO_COLOR") &&
           !is_set("CI");
}

// One less than there are: a full line would wrap on some terminals.
int screen_columns(void)
{
    struct winsize size;
    bool known =
        ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    int columns = known ? size.ws_col : USUAL_COLUMNS;
    return columns < SCREEN_LINE_BYTES ? columns - 1 : SCREEN_LINE_BYTES - 1;
}

// Rows are joined by moves of the cursor, not by line feeds: so who keeps the
// last lines of our output keeps the block once, not every drawing of it.
void screen_draw(char rows[SCREEN_ROWS][SCREEN_LINE_BYTES])
{
    char block[BLOCK_BYTES];
    pthread_mutex_lock(&mu);
    // The answer to Ctrl-C was written below the block: begin a new one.
    drawn = drawn && stop_signal(NULL) == signal_shown;
    signal_shown = stop_signal(NULL);
    int n = snprintf(block, sizeof(block),
        "%s\033[2A\r%s\033[K\033[B\r%s\033[K"
        "\033[B\r%s\033[K",
        drawn ? "" : "\n\n", rows[0], rows[1], rows[2]);
    fwrite(block, 1, (size_t)n, stderr);
    drawn = true;
    pthread_mutex_unlock(&mu);
}

void screen_print(const char *line)
{
    pthread_mutex_lock(&mu);
    fprintf(stderr, "%s%s\n", drawn ? "\033[2A\r\033[J" : "", line);
    drawn = false;
    pthread_mutex_unlock(&mu);
}

void screen_close(void)
{
    pthread_mutex_lock(&mu);
    if (drawn) {
        fputc('\n', stderr);
        drawn = false;
    }
    pthread_mutex_unlock(&mu);
}
