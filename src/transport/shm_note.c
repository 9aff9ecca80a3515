// SPDX-License-Identifier: Apache-2.0

#include "transport/shm_note.h"

#include "base/bytes.h"
#include "base/socket.h"
#include <errno.h>
#include <unistd.h>

// Where the fields lie.
enum {
    AT_MAGIC = 0,
    AT_KIND = 4,
    AT_GENERATION = 8,
    AT_ARENA = 16,
    AT_NBYTES = 24,
    AT_ZERO = 32,
};

static const uint32_t note_magic = 0x31534443; // "CDS1"

cadre_note_result cadre_note_send(int socket, const cadre_note *note, int fd)
{
    uint8_t bytes[CADRE_NOTE_BYTES] = {0};
    cadre_store_u32(bytes + AT_MAGIC, note_magic);
    cadre_store_u32(bytes + AT_KIND, (uint32_t)note->kind);
    cadre_store_u64(bytes + AT_GENERATION, note->generation);
    cadre_store_u64(bytes + AT_ARENA, note->arena);
    cadre_store_u64(bytes + AT_NBYTES, note->nbytes);
    ssize_t sent = cadre_socket_send(socket, bytes, sizeof(bytes), fd);
    if (sent == (ssize_t)sizeof(bytes)) {
        return CADRE_NOTE_DONE;
    }
    // The last two: too many descriptors are on their way, or too much memory.
    bool later = sent < 0 &&
                 (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ||
                     errno == ETOOMANYREFS || errno == ENOBUFS);
    // A Unix socket takes so little as a whole, or not at all.
    return later ? CADRE_NOTE_LATER : CADRE_NOTE_GONE;
}

static bool decode(const uint8_t *bytes, cadre_note *out)
{
    uint32_t kind = cadre_load_u32(bytes + AT_KIND);
    if (cadre_load_u32(bytes + AT_MAGIC) != note_magic ||
        cadre_load_u64(bytes + AT_ZERO) != 0 || kind < CADRE_NOTE_HOME ||
        kind > CADRE_NOTE_FREED) {
        return false;
    }
    *out = (cadre_note){
        .kind = (cadre_note_kind)kind,
        .generation = cadre_load_u64(bytes + AT_GENERATION),
        .arena = cadre_load_u64(bytes + AT_ARENA),
        .nbytes = cadre_load_u64(bytes + AT_NBYTES),
    };
    return true;
}

// Reads until the note is complete.
static cadre_note_result fill(int socket, cadre_note_reader *r)
{
    while (r->used < sizeof(r->bytes)) {
        int passed = -1;
        ssize_t got = cadre_socket_receive(
            socket, r->bytes + r->used, sizeof(r->bytes) - r->used, &passed);
        if (passed >= 0 && r->fd >= 0) {
            close(passed);
            return CADRE_NOTE_GARBAGE;
        }
        r->fd = passed >= 0 ? passed : r->fd;
        // A peer that closed its end before it had read all is told first;
        // what it sent before comes after that.
        if (got < 0 && (errno == ECONNRESET || errno == EINTR)) {
            continue;
        }
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return CADRE_NOTE_LATER;
        }
        if (got <= 0) {
            return CADRE_NOTE_GONE;
        }
        r->used += (size_t)got;
    }
    return CADRE_NOTE_DONE;
}

cadre_note_result cadre_note_receive(
    int socket, cadre_note_reader *reader, cadre_note *note, int *fd)
{
    cadre_note_result result = fill(socket, reader);
    if (result != CADRE_NOTE_DONE) {
        return result;
    }
    bool with_segment = reader->fd >= 0;
    if (!decode(reader->bytes, note) ||
        with_segment != (note->kind != CADRE_NOTE_FREED)) {
        return CADRE_NOTE_GARBAGE;
    }
    *fd = reader->fd;
    reader->fd = -1;
    reader->used = 0;
    return CADRE_NOTE_DONE;
}

void cadre_note_forget(cadre_note_reader *reader)
{
    if (reader->fd >= 0) {
        close(reader->fd);
        reader->fd = -1;
    }
}
