// SPDX-License-Identifier: Apache-2.0
//
// zlib's own reading of files (gzread) takes what lies behind the last member
// for nothing, so the members are unpacked here.

#include "data/gunzip.h"

#include "base/alloc.h"
#include "base/fail.h"
#include <errno.h>
#include <unistd.h>
#include <zlib.h>

enum { INPUT_BYTES = 1 << 16 };

struct cadre_gunzip {
    int fd;
    const char *path;
    z_stream stream;
    bool further; // it is not the first member
    bool ended;   // the member, with its checksum
    uint8_t input[INPUT_BYTES];
};

bool cadre_gunzip_is_wanted(int fd)
{
    uint8_t head[2];
    return pread(fd, head, sizeof(head), 0) == sizeof(head) &&
           head[0] == 0x1f && head[1] == 0x8b;
}

cadre_status cadre_gunzip_create(int fd, const char *path, cadre_gunzip **out)
{
    enum { GZIP_ALONE = 16 + MAX_WBITS };
    cadre_gunzip *g = cadre_alloc(sizeof(*g));
    if (g == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    g->fd = fd;
    g->path = path;
    if (inflateInit2(&g->stream, GZIP_ALONE) != Z_OK) {
        cadre_free(g);
        return cadre_fail(CADRE_ERR_NO_MEMORY, "zlib has no memory");
    }
    *out = g;
    return CADRE_OK;
}

void cadre_gunzip_destroy(cadre_gunzip *g)
{
    if (g != NULL) {
        (void)inflateEnd(&g->stream);
        cadre_free(g);
    }
}

// Whatever comes next of the file; nothing where it ends.
static cadre_status fill(cadre_gunzip *g)
{
    ssize_t n;
    do {
        n = read(g->fd, g->input, INPUT_BYTES);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return cadre_fail_errno(
            CADRE_ERR_IO, errno, "cannot read '%s'", g->path);
    }
    g->stream.next_in = g->input;
    g->stream.avail_in = (unsigned)n;
    return CADRE_OK;
}

// Junk behind a member is taken for one that fails before it has given a byte.
static cadre_status corrupt(const cadre_gunzip *g, const char *what)
{
    return cadre_fail(CADRE_ERR_CORRUPT, "'%s' %s", g->path,
        g->further && g->stream.total_out == 0
            ? "goes on behind its gzip data with something else"
            : what);
}

static cadre_status check(const cadre_gunzip *g, int code)
{
    if (code == Z_OK || code == Z_STREAM_END) {
        return CADRE_OK;
    }
    if (code == Z_MEM_ERROR) {
        return cadre_fail(CADRE_ERR_NO_MEMORY, "zlib has no memory");
    }
    return corrupt(g, "is damaged: its gzip data are broken");
}

// Unpacks something of the input that there is, into room that there is.
static cadre_status unpack(cadre_gunzip *g, uint8_t *at, size_t room)
{
    enum { PART = 1 << 30 }; // zlib counts in unsigned
    if (g->ended) {
        (void)inflateReset(&g->stream); // it has no way to fail here
        g->ended = false;
        g->further = true;
    }
    g->stream.next_out = at;
    g->stream.avail_out = room < PART ? (unsigned)room : PART;
    int code = inflate(&g->stream, Z_NO_FLUSH);
    g->ended = code == Z_STREAM_END;
    return check(g, code);
}

cadre_status cadre_gunzip_read(
    cadre_gunzip *g, uint8_t *at, size_t nbytes, size_t *got)
{
    uint8_t *end = at + nbytes;
    uint8_t *next = at;
    while (next < end) {
        if (g->stream.avail_in == 0) {
            CADRE_TRY(fill(g));
        }
        if (g->stream.avail_in == 0 && !g->ended) {
            return corrupt(g, "is cut: its gzip data end too soon");
        }
        if (g->stream.avail_in == 0) {
            break;
        }
        CADRE_TRY(unpack(g, next, (size_t)(end - next)));
        next = g->stream.next_out;
    }
    *got = (size_t)(next - at);
    return CADRE_OK;
}
