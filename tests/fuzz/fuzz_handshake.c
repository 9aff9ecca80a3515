// SPDX-License-Identifier: Apache-2.0
//
// Strangers, and ranks that say something slightly wrong: at a door, as the side
// that an applicant talks to, and as a peer that sends messages.

#include "fuzz.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/socket.h"
#include "rendezvous/applicant.h"
#include "rendezvous/door.h"
#include "rendezvous/mailbox.h"
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

enum { GENERATION = 55, OWN_RANK = 2 };

static const char job[CADRE_JOB_ID_BYTES] = "this very job";

static cadre_credentials know(cadre_proof proof)
{
    static const char secret[] = "a secret of this job";
    cadre_credentials c = {.proof = proof};
    FUZZ_CHECK(cadre_key_derive(secret, sizeof(secret), &c.key) == CADRE_OK);
    return c;
}

static void say(int fd, const uint8_t *bytes, size_t nbytes)
{
    // What a closed connection does not take is lost, as it would be.
    (void)!cadre_socket_send(fd, bytes, nbytes, -1);
}

// What is left of the input, in two pieces.
static void say_rest(int fd, fuzz_input *in)
{
    size_t first = fuzz_byte(in);
    const uint8_t *bytes = fuzz_bytes(in, &first);
    say(fd, bytes, first);
    size_t rest = in->left;
    bytes = fuzz_bytes(in, &rest);
    say(fd, bytes, rest);
}

// --- a door ---

typedef struct house {
    cadre_credentials credentials;
    cadre_door *door;
    struct sockaddr_un address;
    socklen_t address_bytes;
    bool is_hub;
} house;

static void build(house *h, cadre_proof proof, bool is_hub)
{
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    *h = (house){.credentials = know(proof),
        .address = {.sun_family = AF_UNIX},
        .address_bytes = sizeof(h->address),
        .is_hub = is_hub};
    struct sockaddr *address = (struct sockaddr *)&h->address;
    // Without a name the system finds one, in no folder.
    FUZZ_CHECK(bind(listener, address, sizeof(sa_family_t)) == 0);
    FUZZ_CHECK(getsockname(listener, address, &h->address_bytes) == 0);
    FUZZ_CHECK(listen(listener, 1) == 0);
    cadre_door_rules rules = {.credentials = &h->credentials,
        .to = is_hub ? CADRE_HUB : OWN_RANK,
        .generation = GENERATION};
    if (!is_hub) {
        memcpy(rules.job_id, job, sizeof(rules.job_id));
    }
    FUZZ_CHECK(cadre_door_open(listener, &rules, "fuzz", &h->door) == CADRE_OK);
}

static int knock(const house *h)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(connect(fd, (const struct sockaddr *)&h->address,
                   h->address_bytes) == 0);
    return fd;
}

// What a visitor has said, as far as it decides who is let in.
typedef struct speech {
    bool honest; // all of it is as a rank of this job says it
    bool proved; // the proof is
} speech;

// Says the first two things, as a rank would but for the patches.
static speech prove_with_patches(house *h, int fd, fuzz_input *in)
{
    uint8_t hello[CADRE_HELLO_BYTES];
    uint8_t reply[CADRE_REPLY_BYTES];
    uint8_t mac[CADRE_MAC_BYTES];
    cadre_visitor visitor;
    cadre_hello said = {.proof = h->credentials.proof,
        .from = 4,
        .to = h->is_hub ? CADRE_HUB : OWN_RANK,
        .generation = h->is_hub ? 0 : GENERATION};
    if (!h->is_hub) {
        memcpy(said.job_id, job, sizeof(said.job_id));
    }
    FUZZ_CHECK(cadre_proof_greet(&said, hello) == CADRE_OK);
    bool patched = fuzz_patch(in, hello, sizeof(hello));
    say(fd, hello, sizeof(hello));
    FUZZ_CHECK(!cadre_door_next(h->door, &visitor));
    if (recv(fd, reply, sizeof(reply), 0) != (ssize_t)sizeof(reply)) {
        FUZZ_CHECK(patched);
        return (speech){0};
    }
    FUZZ_CHECK(
        cadre_proof_finish(&h->credentials, hello, reply, mac) == CADRE_OK);
    bool proved = !fuzz_patch(in, mac, sizeof(mac));
    say(fd, mac, sizeof(mac));
    return (speech){.honest = proved && !patched, .proved = proved};
}

// True if it is a rank's.
static bool say_join(int fd, fuzz_input *in)
{
    uint8_t join[CADRE_JOIN_BYTES];
    cadre_writer w = {.data = join, .capacity = sizeof(join), .ok = true};
    const cadre_hub_join joining = {.rank = 4,
        .world_size = 8,
        .timeout_ms = 1000,
        .host = "here",
        .address = "127.0.0.1:99"};
    cadre_encode_join(&w, &joining);
    FUZZ_CHECK(w.ok && w.used == sizeof(join));
    bool patched = fuzz_patch(in, join, sizeof(join));
    say(fd, join, sizeof(join));
    return !patched;
}

static void check_text(const char *text, size_t nbytes)
{
    FUZZ_CHECK(memchr(text, 0, nbytes) != NULL);
    for (; *text != '\0'; text++) {
        FUZZ_CHECK((unsigned char)*text >= ' ' && *text != 127);
    }
}

static void check_visitor(const house *h, cadre_visitor *visitor)
{
    cadre_hub_join join;
    FUZZ_CHECK(visitor->from >= 0 && visitor->from < CADRE_MAX_RANKS);
    if (h->is_hub && cadre_decode_join(&visitor->join, &join)) {
        check_text(join.host, sizeof(join.host));
        check_text(join.address, sizeof(join.address));
        check_text(join.offer.machine, sizeof(join.offer.machine));
    }
    close(visitor->socket);
}

static void visit(fuzz_input *in, bool is_hub)
{
    house h;
    cadre_visitor visitor;
    build(&h, (cadre_proof)(1 + fuzz_byte(in) % 3), is_hub);
    int fd = knock(&h);
    FUZZ_CHECK(!cadre_door_next(h.door, &visitor));
    uint8_t how = fuzz_byte(in) % 4;
    speech said = {0};
    if (how > 0) {
        said = prove_with_patches(&h, fd, in);
    }
    if (how == 1) {
        bool joins = say_join(fd, in);
        said.honest = said.honest && (joins || !is_hub);
    }
    say_rest(fd, in);
    bool let_in = false;
    for (int i = 0; i < 4 && !let_in; i++) {
        let_in = cadre_door_next(h.door, &visitor);
    }
    FUZZ_CHECK(said.proved || !let_in);
    FUZZ_CHECK(let_in || !said.honest || (is_hub && how != 1));
    if (let_in) {
        check_visitor(&h, &visitor);
    }
    close(fd);
    FUZZ_CHECK(!cadre_door_next(h.door, &visitor));
    cadre_door_close(h.door);
    cadre_credentials_drop(&h.credentials);
}

// --- what an applicant is told ---

static void answer(fuzz_input *in)
{
    int ends[2];
    cadre_credentials c = know((cadre_proof)(1 + fuzz_byte(in) % 3));
    cadre_applicant a;
    const cadre_hello hello = {.from = 1, .to = CADRE_HUB};
    fuzz_connection(ends);
    FUZZ_CHECK(cadre_applicant_begin(&a, &c, &hello, ends[0]) == CADRE_OK);
    bool wrong = true;
    if (fuzz_byte(in) % 4 != 0) {
        uint8_t reply[CADRE_REPLY_BYTES];
        FUZZ_CHECK(
            cadre_proof_reply(&c, a.hello, GENERATION, reply) == CADRE_OK);
        wrong = fuzz_patch(in, reply, sizeof(reply));
        say(ends[1], reply, sizeof(reply));
    }
    say_rest(ends[1], in);
    cadre_status status = cadre_applicant_go_on(&a);
    FUZZ_CHECK(!wrong || !a.admitted);
    FUZZ_CHECK(wrong || (status == CADRE_OK && a.admitted &&
                            a.generation == GENERATION));
    close(ends[1]);
    if (status == CADRE_OK) {
        (void)cadre_applicant_go_on(&a);
    }
    close(ends[0]);
    cadre_credentials_drop(&c);
}

// --- messages ---

static void read_message(cadre_message *m)
{
    cadre_hub_join join;
    cadre_verdict verdict;
    cadre_welcome welcome;
    char address[CADRE_ADDRESS_BYTES];
    int rank;
    switch (m->type) {
    case CADRE_MESSAGE_JOIN:
        if (cadre_decode_join(m, &join)) {
            check_text(join.host, sizeof(join.host));
            check_text(join.address, sizeof(join.address));
            check_text(join.offer.machine, sizeof(join.offer.machine));
        }
        break;
    case CADRE_MESSAGE_REPORT:
    case CADRE_MESSAGE_VERDICT:
        if (cadre_decode_verdict(m, &verdict)) {
            check_text(verdict.text, sizeof(verdict.text));
            FUZZ_CHECK(verdict.status != CADRE_OK);
        }
        break;
    case CADRE_MESSAGE_WELCOME:
        if (cadre_decode_welcome(m, &welcome)) {
            for (int i = 0; i < welcome.n_addresses; i++) {
                if (!cadre_decode_address(m, address)) {
                    break;
                }
                check_text(address, sizeof(address));
            }
        }
        break;
    case CADRE_MESSAGE_PEER:
        FUZZ_CHECK(!cadre_decode_peer(m, &rank) || rank >= 0);
        break;
    case CADRE_MESSAGE_ALIVE:
    case CADRE_MESSAGE_GOODBYE:
        break;
    }
}

static void read_messages(fuzz_input *in)
{
    int ends[2];
    cadre_mailbox box;
    fuzz_connection(ends);
    // The size of a rank's box, or one that a welcome fits into.
    size_t capacity = fuzz_byte(in) % 2 == 0 ? CADRE_SMALL_MESSAGE_BYTES
                                             : 4 * CADRE_SMALL_MESSAGE_BYTES;
    uint8_t *memory = cadre_alloc(capacity);
    FUZZ_CHECK(memory != NULL);
    cadre_mailbox_open(&box, ends[0], memory, capacity);
    say_rest(ends[1], in);
    close(ends[1]);
    cadre_message m;
    cadre_mail mail = cadre_mailbox_receive(&box, &m);
    while (mail == CADRE_MAIL_MESSAGE) {
        read_message(&m);
        mail = cadre_mailbox_receive(&box, &m);
    }
    FUZZ_CHECK(mail != CADRE_MAIL_NONE); // the other end is closed
    cadre_mailbox_close(&box);
    cadre_free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    fuzz_input in = {data, nbytes};
    cadre_log_set_sink(CADRE_LOG_OFF, NULL, NULL);
    switch (fuzz_byte(&in) % 4) {
    case 0:
        visit(&in, true);
        break;
    case 1:
        visit(&in, false);
        break;
    case 2:
        answer(&in);
        break;
    default:
        read_messages(&in);
    }
    return 0;
}
