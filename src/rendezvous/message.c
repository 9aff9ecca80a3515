// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/message.h"

#include <stdio.h>
#include <string.h>

static const uint8_t magic[4] = {'C', 'D', 'H', '2'};

// No rank in particular.
#define NO_RANK UINT32_MAX

enum {
    MOST_PAYLOAD = CADRE_WELCOME_HEAD_BYTES - CADRE_MESSAGE_HEADER_BYTES +
                   CADRE_MAX_RANKS * CADRE_ADDRESS_BYTES,
    HIGHEST_NUMBER = 0x7fffffff,
};

int cadre_pace_ms(int timeout_ms)
{
    enum { SIGNS_PER_TIMEOUT = 4 };
    int pace = timeout_ms / SIGNS_PER_TIMEOUT;
    return pace > CADRE_MOST_PACE_MS ? CADRE_MOST_PACE_MS : pace < 1 ? 1 : pace;
}

bool cadre_message_peek(
    const uint8_t *data, size_t used, cadre_message *out, size_t *nbytes)
{
    size_t known = used < sizeof(magic) ? used : sizeof(magic);
    if (known > 0 && memcmp(data, magic, known) != 0) {
        return false;
    }
    if (used < CADRE_MESSAGE_HEADER_BYTES) {
        *nbytes = 0;
        return true;
    }
    uint32_t type = cadre_load_u32(data + 4);
    uint32_t payload = cadre_load_u32(data + 8);
    if (type < CADRE_MESSAGE_JOIN || type > CADRE_MESSAGE_VERDICT ||
        payload > MOST_PAYLOAD) {
        return false;
    }
    out->type = (cadre_message_type)type;
    out->payload = (cadre_reader){.data = data + CADRE_MESSAGE_HEADER_BYTES,
        .nbytes = payload,
        .ok = true};
    *nbytes = CADRE_MESSAGE_HEADER_BYTES + payload;
    return true;
}

static void encode_header(
    cadre_writer *w, cadre_message_type type, size_t payload)
{
    cadre_write_bytes(w, magic, sizeof(magic));
    cadre_write_u32(w, (uint32_t)type);
    cadre_write_u32(w, (uint32_t)payload);
}

// A non-negative int; anything else spoils the reader.
static int read_number(cadre_reader *r)
{
    uint32_t value = cadre_read_u32(r);
    r->ok = r->ok && value <= HIGHEST_NUMBER;
    return r->ok ? (int)value : 0;
}

static cadre_link read_link(cadre_reader *r)
{
    int value = read_number(r);
    r->ok = r->ok && value <= CADRE_LINK_SHM;
    return r->ok ? (cadre_link)value : CADRE_LINK_AUTO;
}

static bool is_complete(const cadre_reader *r)
{
    return r->ok && r->used == r->nbytes;
}

// Texts of others may end up on a terminal.
static void copy_text(char *out, const uint8_t *text, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++) {
        bool control = text[i] < ' ' || text[i] == 127;
        out[i] = (char)(control ? '?' : text[i]);
    }
    out[nbytes] = '\0';
}

// A field of fixed size, filled up with zeros.
static void write_field(cadre_writer *w, const char *text, size_t nbytes)
{
    uint8_t *at = cadre_writer_reserve(w, nbytes);
    if (at != NULL) {
        memset(at, 0, nbytes);
        memcpy(at, text, strnlen(text, nbytes - 1));
    }
}

static void read_field(cadre_reader *r, char *out, size_t nbytes)
{
    const uint8_t *at = cadre_reader_take(r, nbytes);
    out[0] = '\0';
    if (at != NULL) {
        const uint8_t *end = memchr(at, 0, nbytes);
        r->ok = end != NULL;
        copy_text(out, at, end == NULL ? 0 : (size_t)(end - at));
    }
}

void cadre_encode_plain(cadre_writer *w, cadre_message_type type)
{
    encode_header(w, type, 0);
}

void cadre_encode_join(cadre_writer *w, const cadre_hub_join *join)
{
    encode_header(
        w, CADRE_MESSAGE_JOIN, CADRE_JOIN_BYTES - CADRE_MESSAGE_HEADER_BYTES);
    cadre_write_u32(w, (uint32_t)join->rank);
    cadre_write_u32(w, (uint32_t)join->world_size);
    cadre_write_u32(w, (uint32_t)join->timeout_ms);
    cadre_write_u32(w, (uint32_t)join->patience_ms);
    cadre_write_u32(w, (uint32_t)join->pid);
    cadre_write_u32(w, (uint32_t)join->offer.wish);
    write_field(w, join->host, sizeof(join->host));
    write_field(w, join->address, sizeof(join->address));
    write_field(w, join->offer.machine, sizeof(join->offer.machine));
    write_field(w, join->offer.local, sizeof(join->offer.local));
}

bool cadre_decode_join(cadre_message *m, cadre_hub_join *out)
{
    cadre_reader *r = &m->payload;
    out->rank = read_number(r);
    out->world_size = read_number(r);
    out->timeout_ms = read_number(r);
    out->patience_ms = read_number(r);
    out->pid = read_number(r);
    out->offer.wish = read_link(r);
    read_field(r, out->host, sizeof(out->host));
    read_field(r, out->address, sizeof(out->address));
    read_field(r, out->offer.machine, sizeof(out->offer.machine));
    read_field(r, out->offer.local, sizeof(out->offer.local));
    return m->type == CADRE_MESSAGE_JOIN && is_complete(r);
}

void cadre_encode_verdict(cadre_writer *w, cadre_message_type type,
    cadre_status status, int rank, const char *text)
{
    size_t nbytes = strnlen(text, sizeof(((cadre_verdict *)NULL)->text) - 1);
    encode_header(w, type, 2 * sizeof(uint32_t) + nbytes);
    cadre_write_u32(w, (uint32_t)status);
    cadre_write_u32(w, rank < 0 ? NO_RANK : (uint32_t)rank);
    cadre_write_bytes(w, text, nbytes);
}

// Only statuses that break a group, or that a rank may have met on its own,
// are taken from a wire.
static cadre_status known_status(uint32_t value)
{
    switch ((cadre_status)(int32_t)value) {
#define KNOWN(name, number, meaning) case CADRE_##name:
        CADRE_STATUS_LIST(KNOWN)
#undef KNOWN
        return value == CADRE_OK ? CADRE_ERR_ABORTED
                                 : (cadre_status)(int32_t)value;
    }
    return CADRE_ERR_ABORTED;
}

bool cadre_decode_verdict(cadre_message *m, cadre_verdict *out)
{
    cadre_reader *r = &m->payload;
    out->status = known_status(cadre_read_u32(r));
    uint32_t rank = cadre_read_u32(r);
    out->rank = rank < CADRE_MAX_RANKS ? (int)rank : -1;
    size_t nbytes = r->nbytes - r->used;
    if (!r->ok || nbytes >= sizeof(out->text)) {
        return false;
    }
    copy_text(out->text, cadre_reader_take(r, nbytes), nbytes);
    return true;
}

void cadre_encode_peer(cadre_writer *w, int rank)
{
    encode_header(w, CADRE_MESSAGE_PEER, 4);
    cadre_write_u32(w, (uint32_t)rank);
}

bool cadre_decode_peer(cadre_message *m, int *rank)
{
    *rank = read_number(&m->payload);
    return is_complete(&m->payload);
}

void cadre_encode_welcome(cadre_writer *w, const cadre_welcome *welcome)
{
    size_t addresses = (size_t)welcome->n_addresses * CADRE_ADDRESS_BYTES;
    encode_header(w, CADRE_MESSAGE_WELCOME,
        CADRE_WELCOME_HEAD_BYTES - CADRE_MESSAGE_HEADER_BYTES + addresses);
    cadre_write_bytes(w, welcome->job_id, sizeof(welcome->job_id));
    cadre_write_u64(w, welcome->generation);
    cadre_write_u32(w, (uint32_t)welcome->timeout_ms);
    cadre_write_u32(w, (uint32_t)welcome->link);
    cadre_write_u32(w, (uint32_t)welcome->n_addresses);
}

bool cadre_decode_welcome(cadre_message *m, cadre_welcome *out)
{
    cadre_reader *r = &m->payload;
    const uint8_t *id = cadre_reader_take(r, sizeof(out->job_id));
    if (id != NULL) {
        memcpy(out->job_id, id, sizeof(out->job_id));
    }
    out->generation = cadre_read_u64(r);
    out->timeout_ms = read_number(r);
    out->link = read_link(r);
    out->n_addresses = read_number(r);
    return r->ok && out->link != CADRE_LINK_AUTO &&
           out->n_addresses <= CADRE_MAX_RANKS &&
           r->nbytes - r->used ==
               (size_t)out->n_addresses * CADRE_ADDRESS_BYTES;
}

void cadre_encode_address(
    cadre_writer *w, const char address[CADRE_ADDRESS_BYTES])
{
    write_field(w, address, CADRE_ADDRESS_BYTES);
}

bool cadre_decode_address(cadre_message *m, char address[CADRE_ADDRESS_BYTES])
{
    read_field(&m->payload, address, CADRE_ADDRESS_BYTES);
    return m->payload.ok;
}
