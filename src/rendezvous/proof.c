// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/proof.h"

#include "base/bytes.h"
#include "base/fail.h"
#include "base/peer.h"
#include "base/random.h"
#include "base/socket.h"
#include <string.h>
#include <unistd.h>

// Where the fields lie.
enum {
    HELLO_PROOF = 4,
    HELLO_FROM = 8,
    HELLO_TO = 12,
    HELLO_GENERATION = 16,
    HELLO_JOB_ID = 24,
    HELLO_ZERO = 40,
    HELLO_NONCE = 48,
    REPLY_ZERO = 4,
    REPLY_GENERATION = 8,
    REPLY_NONCE = 16,
    REPLY_MAC = 48,
};

enum { MAGIC_BYTES = 4, LABEL_BYTES = 8 };

static const uint8_t hello_magic[MAGIC_BYTES] = {'C', 'D', 'A', '1'};
static const uint8_t reply_magic[MAGIC_BYTES] = {'C', 'D', 'B', '1'};

// One per direction, so that no proof can be sent back as another.
static const uint8_t listener_label[LABEL_BYTES] = "cadre S";
static const uint8_t visitor_label[LABEL_BYTES] = "cadre C";

#define HUB UINT32_MAX

static cadre_status load_key(
    const cadre_place *place, cadre_deadline deadline, cadre_key **key)
{
    cadre_status status;
    const char *name;
    if (place->has_secret_fd) {
        name = "CADRE_SECRET_FD";
        status = cadre_key_read_fd(place->secret_fd, deadline, key);
    } else if (place->secret_file != NULL) {
        name = "CADRE_SECRET_FILE";
        status = cadre_key_read_file(place->secret_file, key);
    } else {
        return cadre_key_derive(NULL, 0, key);
    }
    return status == CADRE_OK ? CADRE_OK
                              : cadre_fail(status, "%s (given by %s)",
                                    cadre_error_text(), name);
}

cadre_status cadre_credentials_load(
    const cadre_place *place, cadre_deadline deadline, cadre_credentials *out)
{
    cadre_credentials c = {.proof = CADRE_PROOF_USER};
    if (place->has_secret_fd || place->secret_file != NULL) {
        c.proof = CADRE_PROOF_SECRET;
    } else if (place->believes_all) {
        c.proof = CADRE_PROOF_NONE;
    }
    CADRE_TRY(load_key(place, deadline, &c.key));
    *out = c;
    return CADRE_OK;
}

void cadre_credentials_drop(cadre_credentials *credentials)
{
    cadre_key_destroy(credentials->key);
    credentials->key = NULL;
}

static bool begins(
    const uint8_t *data, size_t used, const uint8_t magic[MAGIC_BYTES])
{
    return memcmp(data, magic, used < MAGIC_BYTES ? used : MAGIC_BYTES) == 0;
}

bool cadre_hello_begins(const uint8_t *data, size_t used)
{
    return begins(data, used, hello_magic);
}

bool cadre_reply_begins(const uint8_t *data, size_t used)
{
    return begins(data, used, reply_magic);
}

static bool is_zero(const uint8_t *data, size_t nbytes)
{
    uint8_t any = 0;
    for (size_t i = 0; i < nbytes; i++) {
        any |= data[i];
    }
    return any == 0;
}

bool cadre_hello_decode(
    const uint8_t hello[CADRE_HELLO_BYTES], cadre_hello *out)
{
    uint32_t proof = cadre_load_u32(hello + HELLO_PROOF);
    uint32_t from = cadre_load_u32(hello + HELLO_FROM);
    uint32_t to = cadre_load_u32(hello + HELLO_TO);
    if (!cadre_hello_begins(hello, CADRE_HELLO_BYTES) ||
        proof < CADRE_PROOF_USER || proof > CADRE_PROOF_NONE ||
        from >= CADRE_MAX_RANKS || (to >= CADRE_MAX_RANKS && to != HUB) ||
        !is_zero(hello + HELLO_ZERO, HELLO_NONCE - HELLO_ZERO)) {
        return false;
    }
    out->proof = (cadre_proof)proof;
    out->from = (int)from;
    out->to = to == HUB ? CADRE_HUB : (int)to;
    out->generation = cadre_load_u64(hello + HELLO_GENERATION);
    memcpy(out->job_id, hello + HELLO_JOB_ID, sizeof(out->job_id));
    return true;
}

cadre_status cadre_proof_greet(
    const cadre_hello *hello, uint8_t out[CADRE_HELLO_BYTES])
{
    memset(out, 0, CADRE_HELLO_BYTES);
    memcpy(out, hello_magic, MAGIC_BYTES);
    cadre_store_u32(out + HELLO_PROOF, (uint32_t)hello->proof);
    cadre_store_u32(out + HELLO_FROM, (uint32_t)hello->from);
    cadre_store_u32(
        out + HELLO_TO, hello->to == CADRE_HUB ? HUB : (uint32_t)hello->to);
    cadre_store_u64(out + HELLO_GENERATION, hello->generation);
    memcpy(out + HELLO_JOB_ID, hello->job_id, sizeof(hello->job_id));
    return cadre_random_secret(out + HELLO_NONCE, CADRE_NONCE_BYTES);
}

// The proof over all that was said so far, in one direction.
static cadre_status prove(const cadre_credentials *credentials,
    const uint8_t label[LABEL_BYTES], const uint8_t hello[CADRE_HELLO_BYTES],
    const uint8_t *reply, size_t reply_bytes, uint8_t mac[CADRE_MAC_BYTES])
{
    uint8_t said[LABEL_BYTES + CADRE_HELLO_BYTES + CADRE_REPLY_BYTES];
    cadre_writer w = {.data = said, .capacity = sizeof(said), .ok = true};
    cadre_write_bytes(&w, label, LABEL_BYTES);
    cadre_write_bytes(&w, hello, CADRE_HELLO_BYTES);
    cadre_write_bytes(&w, reply, reply_bytes);
    return cadre_key_mac(credentials->key, said, w.used, mac);
}

cadre_status cadre_proof_reply(const cadre_credentials *credentials,
    const uint8_t hello[CADRE_HELLO_BYTES], uint64_t generation,
    uint8_t reply[CADRE_REPLY_BYTES])
{
    memset(reply, 0, CADRE_REPLY_BYTES);
    memcpy(reply, reply_magic, MAGIC_BYTES);
    cadre_store_u64(reply + REPLY_GENERATION, generation);
    CADRE_TRY(cadre_random_secret(reply + REPLY_NONCE, CADRE_NONCE_BYTES));
    return prove(credentials, listener_label, hello, reply, REPLY_MAC,
        reply + REPLY_MAC);
}

bool cadre_proof_check_reply(const cadre_credentials *credentials,
    const uint8_t hello[CADRE_HELLO_BYTES],
    const uint8_t reply[CADRE_REPLY_BYTES], uint64_t *generation)
{
    uint8_t mac[CADRE_MAC_BYTES];
    if (!cadre_reply_begins(reply, CADRE_REPLY_BYTES) ||
        !is_zero(reply + REPLY_ZERO, REPLY_GENERATION - REPLY_ZERO) ||
        prove(credentials, listener_label, hello, reply, REPLY_MAC, mac) !=
            CADRE_OK ||
        !cadre_mac_equal(mac, reply + REPLY_MAC)) {
        return false;
    }
    *generation = cadre_load_u64(reply + REPLY_GENERATION);
    return true;
}

cadre_status cadre_proof_finish(const cadre_credentials *credentials,
    const uint8_t hello[CADRE_HELLO_BYTES],
    const uint8_t reply[CADRE_REPLY_BYTES], uint8_t mac[CADRE_MAC_BYTES])
{
    return prove(
        credentials, visitor_label, hello, reply, CADRE_REPLY_BYTES, mac);
}

bool cadre_proof_check_finish(const cadre_credentials *credentials,
    const uint8_t hello[CADRE_HELLO_BYTES],
    const uint8_t reply[CADRE_REPLY_BYTES], const uint8_t mac[CADRE_MAC_BYTES])
{
    uint8_t wanted[CADRE_MAC_BYTES];
    return cadre_proof_finish(credentials, hello, reply, wanted) == CADRE_OK &&
           cadre_mac_equal(wanted, mac);
}

bool cadre_proof_check_peer(const cadre_credentials *credentials, int socket)
{
    uid_t user;
    return (credentials->proof != CADRE_PROOF_USER &&
               !cadre_socket_is_unix(socket)) ||
           (cadre_peer_user(socket, &user) && user == geteuid());
}
