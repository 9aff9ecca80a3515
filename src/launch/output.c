// SPDX-License-Identifier: Apache-2.0
//
// Linux: pseudo-terminals, and pipe2(), which makes pipes private in one call.

#define _GNU_SOURCE // pipe2, cfmakeraw

#include "launch/output.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

enum { PIECE_BYTES = 4096 }; // PIPE_BUF: a pipe that is writable takes as much

void cadre_outlet_init(cadre_outlet *outlet, int fd)
{
    outlet->fd = fd;
    outlet->error = 0;
    outlet->used = 0;
}

void cadre_outlet_flush(cadre_outlet *outlet)
{
    size_t sent = 0;
    while (sent < outlet->used && outlet->error == 0) {
        struct pollfd p = {.fd = outlet->fd, .events = POLLOUT};
        if (poll(&p, 1, 0) <= 0) {
            break;
        }
        size_t left = outlet->used - sent;
        ssize_t n = write(outlet->fd, outlet->bytes + sent,
            left < PIECE_BYTES ? left : PIECE_BYTES);
        if (n >= 0) {
            sent += (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno != EINTR) {
            outlet->error = errno;
        }
    }
    outlet->used = outlet->error != 0 ? 0 : outlet->used - sent;
    memmove(outlet->bytes, outlet->bytes + sent, outlet->used);
}

static size_t room(const cadre_outlet *outlet)
{
    return outlet->error != 0 ? SIZE_MAX : sizeof(outlet->bytes) - outlet->used;
}

static void put(cadre_outlet *outlet, const char *bytes, size_t nbytes)
{
    if (outlet->error == 0) {
        memcpy(outlet->bytes + outlet->used, bytes, nbytes);
        outlet->used += nbytes;
    }
}

static void remember(cadre_tail *tail, const char *bytes, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++) {
        tail->bytes[tail->written++ % sizeof(tail->bytes)] = bytes[i];
    }
}

// A line that a program drew over and over, such as a progress line, is shown
// as it was drawn last.
static size_t copy_line(const char *line, size_t nbytes, char *to)
{
    size_t from = nbytes;
    while (from > 0 && (line[from - 1] == '\r' || line[from - 1] == '\n')) {
        from--;
    }
    size_t end = from;
    while (from > 0 && line[from - 1] != '\r') {
        from--;
    }
    memcpy(to, line + from, end - from);
    to[end - from] = '\n';
    return end - from + 1;
}

void cadre_tail_lines(
    const cadre_tail *tail, int n, char *text, size_t text_bytes)
{
    char kept[CADRE_TAIL_BYTES];
    size_t capacity = sizeof(tail->bytes);
    size_t used = tail->written < capacity ? tail->written : capacity;
    for (size_t i = 0; i < used; i++) {
        kept[i] = tail->bytes[(tail->written - used + i) % capacity];
    }
    // The n-th line from the end; one more byte than a line has may be needed
    // for a last one that is not ended.
    size_t first = used;
    for (int lines = 0; first > 0; first--) {
        if (kept[first - 1] == '\n' && first < used && ++lines == n) {
            break;
        }
    }
    size_t out = 0;
    while (first < used) {
        const char *end = memchr(kept + first, '\n', used - first);
        size_t nbytes =
            end == NULL ? used - first : (size_t)(end - kept) - first + 1;
        if (out + nbytes + 2 > text_bytes) {
            break;
        }
        out += copy_line(kept + first, nbytes, text + out);
        first += nbytes;
    }
    text[out] = '\0';
}

cadre_status cadre_log_file_open(
    const char *folder, int rank, cadre_log_file *file)
{
    char name[32];
    snprintf(name, sizeof(name), "rank-%d.log", rank);
    char *path = cadre_path_join(folder, name);
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    // A pipe that nobody reads is refused, not waited for.
    int fd = open(path,
        O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NONBLOCK |
            O_NOCTTY,
        0666);
    if (fd < 0) {
        cadre_status status =
            cadre_fail_errno(CADRE_ERR_IO, errno, "cannot write '%s'", path);
        cadre_free(path);
        return status;
    }
    *file = (cadre_log_file){.fd = fd, .path = path};
    return CADRE_OK;
}

void cadre_log_file_close(cadre_log_file *file)
{
    if (file->path != NULL && file->fd >= 0) {
        close(file->fd);
    }
    cadre_free(file->path);
    *file = (cadre_log_file){.fd = -1};
}

// A disk that is full must not stop the job.
static void write_log(cadre_log_file *file, const char *bytes, size_t nbytes)
{
    size_t written = 0;
    while (file->fd >= 0 && written < nbytes) {
        ssize_t n = write(file->fd, bytes + written, nbytes - written);
        if (n > 0) {
            written += (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            (void)cadre_fail_errno(CADRE_ERR_IO, n == 0 ? EIO : errno,
                "'%s' is written no more", file->path);
            cadre_log(CADRE_LOG_WARN, "launcher", "%s", cadre_error_text());
            close(file->fd);
            file->fd = -1;
        }
    }
}

// Passes the first nbytes of the stream's buffer on, and a line's end if wanted.
static void pass_on(cadre_stream *s, size_t nbytes, bool add_end)
{
    size_t tag_bytes = s->raw ? 0 : strlen(s->tag);
    put(s->outlet, s->tag, tag_bytes);
    put(s->outlet, s->bytes, nbytes);
    put(s->outlet, "\n", add_end ? 1 : 0);
    if (s->log != NULL) {
        write_log(s->log, s->bytes, nbytes);
        write_log(s->log, "\n", add_end ? 1 : 0);
    }
    if (s->tail != NULL) {
        remember(s->tail, s->bytes, nbytes);
        remember(s->tail, "\n", add_end ? 1 : 0);
    }
    s->used -= nbytes;
    memmove(s->bytes, s->bytes + nbytes, s->used);
}

static bool pass_bytes(cadre_stream *s)
{
    size_t n = room(s->outlet) < s->used ? room(s->outlet) : s->used;
    if (n > 0) {
        pass_on(s, n, false);
    }
    return n > 0;
}

static bool pass_lines(cadre_stream *s)
{
    bool moved = false;
    while (s->used > 0) {
        const char *end = memchr(s->bytes, '\n', s->used);
        size_t n = end == NULL ? s->used : (size_t)(end - s->bytes) + 1;
        bool whole = end != NULL || s->fd < 0 || s->used == sizeof(s->bytes);
        if (!whole || room(s->outlet) < n + 1 + sizeof(s->tag)) {
            return moved;
        }
        pass_on(s, n, end == NULL);
        moved = true;
    }
    return moved;
}

bool cadre_stream_wants_bytes(const cadre_stream *stream)
{
    return stream->fd >= 0 && stream->used < sizeof(stream->bytes);
}

bool cadre_stream_is_over(const cadre_stream *stream)
{
    return stream->fd < 0 && stream->used == 0;
}

void cadre_stream_end(cadre_stream *stream)
{
    if (stream->fd >= 0) {
        close(stream->fd);
        stream->fd = -1;
    }
}

bool cadre_stream_pump(cadre_stream *stream)
{
    bool moved = false;
    if (cadre_stream_wants_bytes(stream)) {
        ssize_t n = read(stream->fd, stream->bytes + stream->used,
            sizeof(stream->bytes) - stream->used);
        bool later = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK ||
                                  errno == EINTR);
        if (n > 0) {
            stream->used += (size_t)n;
            moved = true;
        } else if (!later) {
            cadre_stream_end(stream); // a terminal ends with EIO
            moved = true;
        }
    }
    return (stream->raw ? pass_bytes(stream) : pass_lines(stream)) || moved;
}

// The launcher must not sleep on its end.
static bool make_patient(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

cadre_status cadre_output_pipe(int *ours, int *theirs)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return cadre_fail_errno(
            CADRE_ERR_IO, errno, "no pipe for output is to be had");
    }
    (void)make_patient(ends[0]);
    *ours = ends[0];
    *theirs = ends[1];
    return CADRE_OK;
}

cadre_status cadre_output_terminal(int fd, int *ours, int *theirs)
{
    char name[64];
    struct winsize size;
    struct termios mode;
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    int slave = -1;
    if (master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0 &&
        ptsname_r(master, name, sizeof(name)) == 0) {
        slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    }
    if (slave < 0) {
        int error = errno;
        if (master >= 0) {
            close(master);
        }
        return cadre_fail_errno(
            CADRE_ERR_IO, error, "no terminal for output is to be had");
    }
    // Bytes go through unchanged: the outer terminal does what is to be done.
    if (tcgetattr(slave, &mode) == 0) {
        cfmakeraw(&mode);
        (void)tcsetattr(slave, TCSANOW, &mode);
    }
    if (ioctl(fd, TIOCGWINSZ, &size) == 0) {
        (void)ioctl(slave, TIOCSWINSZ, &size);
    }
    (void)make_patient(master);
    *ours = master;
    *theirs = slave;
    return CADRE_OK;
}
