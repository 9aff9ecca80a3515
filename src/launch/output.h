// SPDX-License-Identifier: Apache-2.0
//
// What ranks print: from their pipes, by whole lines, to the launcher's own
// streams and to log files; and the last lines of each, for a failure's report.
//
// Nothing here sleeps.  An outlet that takes no more bytes, such as a pager that
// waits for a key, is left alone until it does; the streams that go there then
// wait too.
//
// Threads: one at a time.

#ifndef CADRE_LAUNCH_OUTPUT_H
#define CADRE_LAUNCH_OUTPUT_H

#include "cadre/status.h"
#include <stdbool.h>
#include <stddef.h>

enum {
    CADRE_LINE_BYTES = 16384, // longer lines are cut
    CADRE_TAIL_BYTES = 8192,  // of the last output that is kept
    CADRE_TAG_BYTES = 96,
    CADRE_OUTLET_BYTES = 65536,
};

/** Where bytes go. */
typedef struct cadre_outlet {
    int fd;    // borrowed
    int error; // of the write that failed: what comes is dropped; 0: none did
    char bytes[CADRE_OUTLET_BYTES];
    size_t used;
} cadre_outlet;

void cadre_outlet_init(cadre_outlet *outlet, int fd);

/** Writes what the descriptor takes. */
void cadre_outlet_flush(cadre_outlet *outlet);

/** What a stream said last. */
typedef struct cadre_tail {
    char bytes[CADRE_TAIL_BYTES]; // a ring
    size_t written;               // since the beginning
} cadre_tail;

/** Copies the last n lines, each as a terminal would show it at its end. */
void cadre_tail_lines(
    const cadre_tail *tail, int n, char *text, size_t text_bytes);

/** A rank's log file. */
typedef struct cadre_log_file {
    int fd;     // -1: it is not written any more
    char *path; // owned
} cadre_log_file;

/**
 * Opens the log file of a rank, "folder/rank-3.log", empty.  If it cannot be
 * written later, that is said once, and it is left as it is.
 *
 * Errors: CADRE_ERR_IO  names the file and the reason
 *         CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_log_file_open(
    const char *folder, int rank, cadre_log_file *file);
void cadre_log_file_close(cadre_log_file *file); // one of zeros is allowed

/** Where bytes come from. */
typedef struct cadre_stream {
    int fd;               // -1: ended
    cadre_outlet *outlet; // borrowed
    cadre_log_file *log;  // borrowed; NULL: none
    cadre_tail *tail;     // borrowed; NULL: none
    bool raw; // bytes are passed on as they come, not by whole lines
    char tag[CADRE_TAG_BYTES]; // before each line

    char bytes[CADRE_LINE_BYTES];
    size_t used;
} cadre_stream;

/** Reads what is there and passes on what can be.  True if bytes moved. */
bool cadre_stream_pump(cadre_stream *stream);

/** There is room to read more. */
bool cadre_stream_wants_bytes(const cadre_stream *stream);

/** All that came has been passed on, and no more will come. */
bool cadre_stream_is_over(const cadre_stream *stream);

/** Closes the descriptor; what is left is passed on by cadre_stream_pump(). */
void cadre_stream_end(cadre_stream *stream);

/**
 * A pipe of which the launcher reads one end: *theirs is for the rank.
 *
 * Errors: CADRE_ERR_IO
 */
cadre_status cadre_output_pipe(int *ours, int *theirs);

/** The same with a terminal's look, as large as that at fd. */
cadre_status cadre_output_terminal(int fd, int *ours, int *theirs);

#endif // CADRE_LAUNCH_OUTPUT_H
