// SPDX-License-Identifier: Apache-2.0
//
// What shm does beyond what every transport promises: arenas, frames by name,
// peers that write what cannot be, and what is left of one that was killed.

#define _GNU_SOURCE // memfd_create

#include "support/check.h"
#include "support/ranks.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "collective/shared.h"
#include "transport/shm_impl.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NBYTES = 100000, GENERATION = 7 };

static const cadre_call call = {
    .operation = CADRE_OP_FOLD,
    .dtype = CADRE_U8,
    .root = -1,
    .sequence = 1,
    .count = NBYTES,
};

static cadre_transport *ranks[2];

// The place of a rank's end as the other one has it.
static shm_peer *seen_by(int rank)
{
    return &as_shm(ranks[rank])->peers[1 - rank];
}

static void make_progress(int rank)
{
    CHECK_OK(cadre_transport_progress(ranks[rank], 0));
}

static void open_both(void)
{
    int sockets[4];
    connect_all(LINK_SHM, 2, sockets);
    for (int r = 0; r < 2; r++) {
        CHECK_OK(cadre_shm_open(r, 2, GENERATION, &sockets[2 * r], &ranks[r]));
    }
    make_progress(0);
    make_progress(1);
    assert_true(seen_by(0)->met && seen_by(1)->met);
}

static void close_both(void)
{
    for (int r = 0; r < 2; r++) {
        cadre_transport_close(ranks[r]);
        ranks[r] = NULL;
    }
}

static const cadre_shared_ops *shared(void)
{
    return ranks[0]->ops->shared;
}

static char *new_arena(int rank, size_t nbytes)
{
    void *memory;
    CHECK_OK(ranks[rank]->ops->shared->alloc(ranks[rank], nbytes, &memory));
    return memory;
}

static void fill(char *memory, size_t nbytes, size_t seed)
{
    for (size_t i = 0; i < nbytes; i++) {
        memory[i] = (char)((i + seed) * 7 % 251);
    }
}

static void arenas_are_reached_by_name(void **state)
{
    (void)state;
    open_both();
    char *own = new_arena(0, NBYTES);
    char *another = new_arena(0, 64);
    assert_int_equal((uintptr_t)own % CADRE_CACHE_LINE, 0);
    fill(own, NBYTES, 0);
    cadre_shared_name name = {0};
    cadre_shared_name last = {0};
    void *seen;
    assert_true(shared()->name(ranks[0], own + 100, NBYTES - 100, &name));
    assert_true(shared()->name(ranks[0], another, 1, &last));
    assert_int_equal(name.offset, 100);
    assert_int_not_equal(name.arena, 0);
    assert_int_not_equal(name.arena, last.arena);
    CHECK_OK(shared()->reach(ranks[1], 0, name, NBYTES - 100, &seen));
    assert_memory_equal(seen, own + 100, NBYTES - 100);
    ((char *)seen)[0] = 'x'; // both may write
    assert_int_equal(own[100], 'x');
    void *again;
    CHECK_OK(shared()->reach(ranks[0], 0, name, NBYTES - 100, &again));
    assert_ptr_equal(again, own + 100); // one's own
    close_both();
}

static void only_what_lies_in_one_arena_has_a_name(void **state)
{
    (void)state;
    open_both();
    char *own = new_arena(0, 4096);
    char elsewhere;
    cadre_shared_name name;
    assert_true(shared()->name(ranks[0], own, 4096, &name));
    assert_true(shared()->name(ranks[0], own + 4095, 1, &name));
    assert_false(shared()->name(ranks[0], own + 1, 4096, &name));
    assert_false(shared()->name(ranks[0], own, SIZE_MAX, &name));
    assert_false(shared()->name(ranks[0], own - 1, 2, &name));
    assert_false(shared()->name(ranks[0], &elsewhere, 1, &name));
    assert_false(shared()->name(ranks[1], own, 1, &name)); // rank 0 has it
    close_both();
}

static void check_no_place(uint64_t arena, uint64_t offset, size_t nbytes)
{
    void *seen = NULL;
    CHECK_FAILS(shared()->reach(ranks[1], 0, (cadre_shared_name){arena, offset},
                    nbytes, &seen),
        CADRE_ERR_CORRUPT, "rank 0 has no arena");
    assert_null(seen);
}

static void places_that_are_not_there_are_refused(void **state)
{
    (void)state;
    open_both();
    char *own = new_arena(0, 4096);
    cadre_shared_name name;
    void *seen;
    assert_true(shared()->name(ranks[0], own, 1, &name));
    CHECK_OK(shared()->reach(ranks[1], 0, name, 4096, &seen));
    check_no_place(name.arena, 0, 4097);
    check_no_place(name.arena, 4096, 1);
    check_no_place(name.arena, 4095, 2);
    check_no_place(name.arena, UINT64_MAX, 2);
    check_no_place(name.arena, 1, SIZE_MAX);
    check_no_place(0, 0, 1);
    check_no_place(name.arena + 1, 0, 1);
    check_no_place(UINT64_MAX, 0, 1);
    // Freed, it is nowhere, and its number is not used again.
    shared()->free(ranks[0], own);
    make_progress(1);
    check_no_place(name.arena, 0, 1);
    cadre_shared_name next;
    assert_true(shared()->name(ranks[0], new_arena(0, 1), 1, &next));
    assert_true(next.arena > name.arena);
    close_both();
}

// How many mappings of segments this process has.
static int count_segments(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        n += strstr(line, "memfd:cadre") != NULL;
    }
    (void)fclose(file);
    return n;
}

static int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    int n = 0;
    while (readdir(folder) != NULL) {
        n++;
    }
    closedir(folder);
    return n;
}

static void descriptors_are_closed_once_mapped(void **state)
{
    (void)state;
    enum { N = 5 };
    int before = count_descriptors();
    char *arenas[N];
    open_both();
    assert_int_equal(count_descriptors(), before + 2); // a pair of sockets
    assert_int_equal(count_segments(), 4); // both homes, on both sides
    for (int i = 0; i < N; i++) {
        arenas[i] = new_arena(i % 2, 5000);
    }
    make_progress(0);
    make_progress(1);
    make_progress(0); // now the first has heard of what the second told
    assert_int_equal(count_descriptors(), before + 2);
    assert_int_equal(count_segments(), 4 + 2 * N);
    for (int i = 0; i < N; i++) {
        shared()->free(ranks[i % 2], arenas[i]);
    }
    make_progress(0);
    make_progress(1);
    assert_int_equal(count_segments(), 4);
    close_both();
    assert_int_equal(count_segments(), 0);
    assert_int_equal(count_descriptors(), before);
}

// A descriptor on its way would keep its memory while the peer does not look.
static void what_is_freed_unused_is_not_told(void **state)
{
    (void)state;
    open_both();
    cadre_shared_name name;
    uint64_t n_sent = seen_by(0)->n_sent;
    char *kept = new_arena(0, 1);
    for (int i = 0; i < 1000; i++) {
        shared()->free(ranks[0], new_arena(0, 1 << 16));
    }
    assert_int_equal(seen_by(0)->n_sent, n_sent);
    assert_int_equal(as_shm(ranks[0])->n_news, 1);
    assert_true(shared()->name(ranks[0], kept, 1, &name));
    assert_int_equal(seen_by(0)->n_sent, n_sent + 1);
    make_progress(1);
    void *seen;
    CHECK_OK(shared()->reach(ranks[1], 0, name, 1, &seen));
    // Once told, its end is as well.
    shared()->free(ranks[0], kept);
    assert_int_equal(seen_by(0)->n_sent, n_sent + 2);
    make_progress(1);
    assert_int_equal(count_segments(), 4);
    close_both();
}

// A peer that does not look fills its socket; what is told then waits here.
static void a_full_socket_holds_nobody_up(void **state)
{
    (void)state;
    enum { N = 600 };
    int small = 1;
    open_both();
    assert_int_equal(setsockopt(seen_by(0)->socket, SOL_SOCKET, SO_SNDBUF,
                         &small, sizeof(small)),
        0);
    static char *arenas[N];
    cadre_shared_name name;
    int n_named = 0;
    for (int i = 0; i < N; i++) {
        arenas[i] = new_arena(0, 1);
        arenas[i][0] = (char)i;
        n_named += shared()->name(ranks[0], arenas[i], 1, &name) ? 1 : 0;
    }
    assert_true(n_named > 0 && n_named < N);
    for (int i = 1; i < N; i += 2) { // some of them before they were told
        shared()->free(ranks[0], arenas[i]);
    }
    for (int i = 0; i < N; i++) {
        make_progress(1);
        (void)shared()->name(ranks[0], arenas[N - 2], 1, &name);
    }
    make_progress(1);
    for (int i = 0; i < N; i += 2) {
        void *seen;
        assert_true(shared()->name(ranks[0], arenas[i], 1, &name));
        CHECK_OK(shared()->reach(ranks[1], 0, name, 1, &seen));
        assert_int_equal(*(char *)seen, (char)i);
    }
    assert_int_equal(count_segments(), 4 + N);
    close_both();
}

// A window has no name before there is room for its descriptor.
static void a_collective_begins_when_its_window_has_a_name(void **state)
{
    (void)state;
    enum { N_OTHERS = 600, COUNT = 1000 };
    static const size_t offsets[] = {0, COUNT / 2, COUNT};
    static float user[2][COUNT];
    const cadre_call sum = {.operation = CADRE_OP_ALLREDUCE,
        .dtype = CADRE_F32,
        .reduce_op = CADRE_SUM,
        .root = -1,
        .sequence = 1,
        .count = COUNT};
    cadre_shared *s[2];
    bool done[2] = {false, false};
    int small = 1;
    open_both();
    assert_int_equal(setsockopt(seen_by(0)->socket, SOL_SOCKET, SO_SNDBUF,
                         &small, sizeof(small)),
        0);
    for (int i = 0; i < N_OTHERS; i++) {
        (void)new_arena(0, 1);
    }
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < COUNT; i++) {
            user[r][i] = (float)(r + i);
        }
        cadre_shared_what what = {&sum, user[r], user[r], offsets};
        CHECK_OK(cadre_shared_open(ranks[r], &s[r]));
        CHECK_OK(cadre_shared_reserve(s[r], &what));
        cadre_shared_begin(s[r], &what);
        CHECK_OK(cadre_shared_advance(s[r], &done[r]));
        assert_true(as_shm(ranks[0])->n_news > 0);
        assert_false(done[r]);
    }
    assert_true(cadre_shared_waits_for(s[1], 0));
    for (int i = 0; i < N_OTHERS && !(done[0] && done[1]); i++) {
        for (int r = 0; r < 2; r++) {
            make_progress(r);
            if (!done[r]) {
                CHECK_OK(cadre_shared_advance(s[r], &done[r]));
            }
        }
    }
    assert_true(done[0] && done[1]);
    for (int i = 0; i < COUNT; i++) {
        assert_true(user[0][i] == (float)(2 * i + 1));
        assert_true(user[1][i] == (float)(2 * i + 1));
    }
    close_both();
    cadre_shared_close(s[0]);
    cadre_shared_close(s[1]);
}

static void boards_are_everybodys(void **state)
{
    (void)state;
    open_both();
    char *own = shared()->board(ranks[0], 0);
    const char *seen = shared()->board(ranks[1], 0);
    assert_int_equal((uintptr_t)own % 4096, 0);
    assert_int_equal((uintptr_t)seen % 4096, 0);
    assert_int_equal(seen[0], 0);
    assert_int_equal(seen[CADRE_BOARD_BYTES - 1], 0);
    own[0] = 'a';
    own[CADRE_BOARD_BYTES - 1] = 'b';
    assert_int_equal(seen[0], 'a');
    assert_int_equal(seen[CADRE_BOARD_BYTES - 1], 'b');
    close_both();
}

// Rung before it waits, also before it has been met, a rank does not wait.
static void a_ring_is_never_lost(void **state)
{
    (void)state;
    int sockets[4];
    cadre_deadline deadline = cadre_deadline_in_ms(20000);
    connect_all(LINK_SHM, 2, sockets);
    CHECK_OK(cadre_shm_open(0, 2, GENERATION, sockets, &ranks[0]));
    const char *seen = shared()->board(ranks[0], 1); // there from the start
    assert_int_equal(*seen, 0);
    shared()->ring(ranks[0]);
    CHECK_OK(cadre_shm_open(1, 2, GENERATION, &sockets[2], &ranks[1]));
    *(char *)shared()->board(ranks[1], 1) = 'y';
    make_progress(0);
    assert_int_equal(*seen, 'y');
    while (seen_by(1)->met == false) {
        CHECK_OK(cadre_transport_progress(ranks[1], deadline));
    }
    for (int i = 0; i < 10; i++) {
        shared()->ring(ranks[i % 2]);
        CHECK_OK(cadre_transport_progress(ranks[1 - i % 2], deadline));
    }
    assert_true(cadre_now_ns() < deadline);
    close_both();
}

static void what_lies_in_arenas_is_copied_once(void **state)
{
    (void)state;
    enum { N_RUNS = 4 };
    open_both();
    char *from[2] = {new_arena(0, NBYTES), new_arena(0, NBYTES)};
    char *to = cadre_alloc(2 * NBYTES);
    fill(from[0], NBYTES, 0);
    fill(from[1], NBYTES, 9);
    cadre_run out[N_RUNS] = {{from[0], 70000}, {NULL, 0}, {from[1], NBYTES},
        {from[0] + 70000, NBYTES - 70000}};
    cadre_run in[3] = {{to, 1}, {to + 1, 150000}, {to + 150001, 49999}};
    cadre_transfer send = {.call = &call, .runs = out, .n_runs = N_RUNS};
    cadre_transfer receive = {.call = &call, .runs = in, .n_runs = 3};
    CHECK_OK(cadre_transport_send(ranks[0], 1, &send));
    make_progress(0);
    assert_false(send.done); // it is the receiver's turn
    assert_int_equal(seen_by(0)->n_handed, 1);
    CHECK_OK(cadre_transport_receive(ranks[1], 0, &receive));
    make_progress(1);
    assert_true(receive.done);
    make_progress(0);
    assert_true(send.done);
    assert_memory_equal(to, from[0], 70000);
    assert_memory_equal(to + 70000, from[1], NBYTES);
    assert_memory_equal(to + 70000 + NBYTES, from[0] + 70000, 30000);
    cadre_free(to);
    close_both();
}

// Runs elsewhere, or too many of them, go through the ring.
static void what_cannot_be_named_is_sent(void **state)
{
    (void)state;
    enum { MOST = CADRE_SHM_NAMES + 1, EACH = NBYTES / MOST };
    open_both();
    char *arena = new_arena(0, NBYTES);
    char *elsewhere = cadre_alloc(EACH);
    char *to = cadre_alloc(NBYTES);
    cadre_run out[MOST];
    for (int n = MOST - 2; n <= MOST; n++) {
        for (int odd = 0; odd < 2; odd++) {
            fill(arena, NBYTES, (size_t)n);
            memset(to, 0, NBYTES);
            for (int i = 0; i < n; i++) {
                out[i] = (cadre_run){arena + i * EACH, EACH};
            }
            if (odd != 0) {
                memcpy(elsewhere, out[n - 1].data, EACH);
                out[n - 1].data = elsewhere;
            }
            size_t nbytes = (size_t)n * EACH;
            cadre_run in = {to, nbytes};
            cadre_transfer send = {
                .call = &call, .runs = out, .n_runs = (size_t)n};
            cadre_transfer receive = {.call = &call, .runs = &in, .n_runs = 1};
            uint64_t handed = seen_by(0)->n_handed;
            CHECK_OK(cadre_transport_send(ranks[0], 1, &send));
            CHECK_OK(cadre_transport_receive(ranks[1], 0, &receive));
            while (!receive.done || !send.done) {
                make_progress(0);
                make_progress(1);
            }
            bool named = odd == 0 && n <= CADRE_SHM_NAMES;
            assert_int_equal(seen_by(0)->n_handed - handed, named ? 1 : 0);
            assert_memory_equal(to, arena, nbytes);
        }
    }
    cadre_free(elsewhere);
    cadre_free(to);
    close_both();
}

// Memory that was given back may hold anything.
static void nothing_is_taken_from_who_has_left(void **state)
{
    (void)state;
    open_both();
    char *from = new_arena(0, NBYTES);
    char *to = cadre_alloc(NBYTES);
    cadre_run out = {from, NBYTES};
    cadre_run in = {to, NBYTES};
    cadre_transfer send = {.call = &call, .runs = &out, .n_runs = 1};
    cadre_transfer receive = {.call = &call, .runs = &in, .n_runs = 1};
    CHECK_OK(cadre_transport_send(ranks[0], 1, &send));
    assert_int_equal(seen_by(0)->n_handed, 1);
    cadre_transport_abandon(ranks[0]);
    CHECK_OK(cadre_transport_receive(ranks[1], 0, &receive));
    CHECK_FAILS(cadre_transport_progress(ranks[1], 0), CADRE_ERR_PEER_LOST,
        "rank 0 has left");
    assert_int_equal(ranks[1]->failed_peer, 0);
    assert_false(receive.done);
    cadre_free(to);
    close_both();
}

// Rank 0 waits for a frame of NBYTES; rank 1 has done something else.
static void check_hostile(cadre_status status, const char *words)
{
    char *to = cadre_alloc(NBYTES);
    cadre_run in = {to, NBYTES};
    cadre_transfer receive = {.call = &call, .runs = &in, .n_runs = 1};
    cadre_deadline deadline = cadre_deadline_in_ms(5000);
    CHECK_OK(cadre_transport_receive(ranks[0], 1, &receive));
    cadre_status got = CADRE_OK;
    while (got == CADRE_OK && cadre_now_ns() < deadline) {
        got = cadre_transport_progress(ranks[0], deadline);
    }
    CHECK_FAILS(got, status, words);
    assert_int_equal(ranks[0]->failed_peer, 1);
    assert_false(receive.done);
    cadre_free(to);
    close_both();
}

// Puts bytes into the ring from rank 1 to rank 0.
static void put(const void *data, size_t nbytes)
{
    union {
        const void *from;
        void *base;
    } start = {.from = data};
    struct iovec piece = {.iov_base = start.base, .iov_len = nbytes};
    cadre_ring_write(&seen_by(1)->out, &piece, nbytes);
    cadre_bell_ring(cadre_shm_bell(as_shm(ranks[1]), 0));
}

static void put_header(uint64_t nbytes, bool named, bool checked)
{
    uint8_t header[CADRE_FRAME_BYTES];
    cadre_frame frame = {.generation = GENERATION,
        .call = call,
        .nbytes = nbytes,
        .sender = 1,
        .named = named,
        .checked = checked};
    cadre_frame_encode(&frame, header);
    put(header, sizeof(header));
}

static void garbage_in_a_ring_is_refused(void **state)
{
    (void)state;
    static const uint8_t garbage[CADRE_FRAME_BYTES] = "GET / HTTP/1.1";
    open_both();
    put(garbage, sizeof(garbage));
    check_hostile(CADRE_ERR_PEER_LOST, "is unusable: what came is no frame");
    open_both();
    put_header((uint64_t)4 << 30, false, false);
    check_hostile(CADRE_ERR_DESYNC, "rank 1 sends 4294967296 bytes");
    open_both();
    put_header(NBYTES, false, true); // with a checksum, which nobody makes
    check_hostile(CADRE_ERR_PEER_LOST, "is unusable");
}

static void counts_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const uint64_t beyond[] = {1, 1000000, UINT64_MAX / 2};
    for (int i = 0; i < 3; i++) {
        open_both();
        cadre_ring_writer *w = &seen_by(1)->out;
        atomic_store(&w->words->written, w->capacity + beyond[i]);
        check_hostile(CADRE_ERR_PEER_LOST, "more was written than there was");

        open_both();
        cadre_ring_words *back = seen_by(1)->in.words;
        atomic_store(&back->read, beyond[i]);
        char byte = 0;
        cadre_run out = {&byte, 1};
        cadre_transfer send = {.call = &call, .runs = &out, .n_runs = 1};
        CHECK_FAILS(cadre_transport_send(ranks[0], 1, &send),
            CADRE_ERR_PEER_LOST, "more was read than was written");
        close_both();

        open_both();
        atomic_store(&seen_by(1)->in.words->taken, beyond[i]);
        check_hostile(CADRE_ERR_PEER_LOST, "more frames came back");
    }
}

// A frame that names n places, as rank 1 writes them.
static void put_names(uint64_t n, const uint64_t names[][3], size_t n_written)
{
    uint8_t bytes[8 + 3 * 8 * 4];
    put_header(NBYTES, true, false);
    cadre_store_u64(bytes, n);
    for (size_t i = 0; i < n_written; i++) {
        for (size_t k = 0; k < 3; k++) {
            cadre_store_u64(bytes + 8 + 24 * i + 8 * k, names[i][k]);
        }
    }
    put(bytes, 8 + 24 * n_written);
}

static void names_out_of_bounds_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint64_t n;
        size_t n_written;
        uint64_t names[2][3]; // arena, offset, bytes; of an arena of 102400
        const char *words;
    } cases[] = {
        {1, 1, {{9, 0, NBYTES}}, "has no arena 9"},
        {1, 1, {{0, 0, NBYTES}}, "has no arena 0"},
        {1, 1, {{1, 2401, NBYTES}}, "has no arena 1 with 100000 bytes"},
        {1, 1, {{1, UINT64_MAX, NBYTES}}, "has no arena 1 with"},
        {1, 1, {{1, 0, NBYTES + 1}}, "names more of them"},
        {1, 1, {{1, 0, UINT64_MAX}}, "names more of them"},
        {2, 2, {{1, 0, NBYTES}, {1, 0, UINT64_MAX - NBYTES + 1}},
            "names more of them"},
        {1, 1, {{1, 0, NBYTES - 1}}, "names 1 fewer of them"},
        {0, 0, {{0}}, "names 100000 fewer of them"},
        {65, 0, {{0}}, "a frame with 65 names"},
        {(uint64_t)1 << 60, 0, {{0}}, "names, 64 is the most"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        open_both();
        (void)new_arena(1, 102400);
        make_progress(1);
        put_names(cases[i].n, cases[i].names, cases[i].n_written);
        check_hostile(CADRE_ERR_PEER_LOST, cases[i].words);
    }
}

static int other_memory(size_t nbytes, bool sealed)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)nbytes), 0);
    char *memory =
        mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED);
    memset(memory, 1, nbytes);
    munmap(memory, nbytes);
    if (sealed) {
        enum { SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW };
        assert_int_equal(fcntl(fd, F_ADD_SEALS, SEALS), 0);
    }
    return fd;
}

// Rank 1 says a note of its own making; fd goes along and is closed.
static void say(const cadre_note *note, int fd)
{
    assert_int_equal(
        cadre_note_send(seen_by(1)->socket, note, fd), CADRE_NOTE_DONE);
    if (fd >= 0) {
        close(fd);
    }
}

static void notes_that_cannot_be_are_refused(void **state)
{
    (void)state;
    int before = count_descriptors();
    uint64_t home = as_shm((open_both(), ranks[0]))->home_bytes;
    close_both();
    const struct {
        cadre_note note;
        size_t nbytes; // of what goes along
        bool sealed;
        const char *words;
    } cases[] = {
        {{CADRE_NOTE_ARENA, GENERATION, 1, 4096}, 4096, false, "sealed"},
        {{CADRE_NOTE_ARENA, GENERATION, 1, 8192}, 4096, true, "announced"},
        {{CADRE_NOTE_ARENA, GENERATION, 1, (uint64_t)4 << 30}, 4096, true,
            "announced"},
        {{CADRE_NOTE_ARENA, GENERATION, 0, 4096}, 4096, true, "comes after"},
        {{CADRE_NOTE_ARENA, GENERATION + 1, 1, 4096}, 4096, true,
            "another group"},
        {{CADRE_NOTE_ARENA, GENERATION, 1, 4096}, 0, false, "no note"},
        {{CADRE_NOTE_FREED, GENERATION, 1, 0}, 4096, true, "no note"},
        {{(cadre_note_kind)4, GENERATION, 1, 4096}, 4096, true, "no note"},
        {{CADRE_NOTE_HOME, GENERATION, 0, home}, 4096, true, "a second home"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        open_both();
        say(&cases[i].note, cases[i].nbytes == 0 ? -1
                                                 : other_memory(cases[i].nbytes,
                                                       cases[i].sealed));
        check_hostile(CADRE_ERR_PEER_LOST, cases[i].words);
    }
    open_both();
    assert_int_equal(
        send(seen_by(1)->socket,
            "GET / HTTP/1.1\r\nHost: somewhere else\r\n\r\n", 40, 0),
        40);
    check_hostile(CADRE_ERR_PEER_LOST, "what came is no note");
    assert_int_equal(count_descriptors(), before);
    assert_int_equal(count_segments(), 0);
}

// Rank 1, in a process of its own, until it is killed.
static void be_killed(const int *sockets, int ready)
{
    alarm(60);
    close(sockets[1]);
    CHECK_OK(cadre_shm_open(1, 2, GENERATION, &sockets[2], &ranks[1]));
    char *arena = new_arena(1, NBYTES);
    cadre_run run = {arena, NBYTES};
    cadre_transfer send = {.call = &call, .runs = &run, .n_runs = 1};
    CHECK_OK(cadre_transport_send(ranks[1], 0, &send));
    for (bool told = false;;) {
        CHECK_OK(cadre_transport_progress(
            ranks[1], cadre_deadline_in_ms(told ? 1000 : 1)));
        if (!told && seen_by(1)->n_handed == 1) {
            told = write(ready, "x", 1) == 1;
        }
    }
}

static void nothing_is_left_of_a_peer_that_was_killed(void **state)
{
    (void)state;
    int before = count_descriptors();
    for (int round = 0; round < 5; round++) {
        int sockets[4];
        int ready[2];
        char byte;
        connect_all(LINK_SHM, 2, sockets);
        assert_int_equal(pipe(ready), 0);
        fflush(NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            be_killed(sockets, ready[1]);
            _exit(1);
        }
        close(sockets[2]);
        CHECK_OK(cadre_shm_open(0, 2, GENERATION, sockets, &ranks[0]));
        (void)new_arena(0, NBYTES);
        make_progress(0); // it meets the other, which meets it
        char *to = cadre_alloc(2 * NBYTES);
        cadre_run runs[2] = {{to, NBYTES}, {to + NBYTES, NBYTES}};
        cadre_transfer receives[2] = {
            {.call = &call, .runs = &runs[0], .n_runs = 1},
            {.call = &call, .runs = &runs[1], .n_runs = 1}};
        CHECK_OK(cadre_transport_receive(ranks[0], 1, &receives[0]));
        CHECK_OK(cadre_transport_receive(ranks[0], 1, &receives[1]));
        if (round > 0) { // else at any moment of its beginning
            assert_int_equal(read(ready[0], &byte, 1), 1);
        }
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        cadre_deadline deadline = cadre_deadline_in_ms(10000);
        cadre_status status = CADRE_OK;
        while (status == CADRE_OK && cadre_now_ns() < deadline) {
            status = cadre_transport_progress(ranks[0], deadline);
        }
        CHECK_FAILS(
            status, CADRE_ERR_PEER_LOST, "rank 1 has closed its connection");
        // What it had sent before arrived.
        assert_true(round == 0 || receives[0].done);
        assert_false(receives[1].done);
        cadre_transport_close(ranks[0]);
        cadre_free(to);
        close(ready[0]);
        close(ready[1]);
        assert_int_equal(count_segments(), 0);
        assert_int_equal(count_descriptors(), before);
    }
}

static void meet_often(cadre_group *g, void *ctx)
{
    (void)ctx;
    enum { ROUNDS = 200, COUNT = 1000 };
    static float sums[COUNT];
    for (int i = 0; i < ROUNDS; i++) {
        RANK_OK(cadre_barrier(g, NULL));
    }
    for (int i = 0; i < COUNT; i++) {
        sums[i] = (float)cadre_rank(g);
    }
    RANK_OK(cadre_allreduce(g, sums, sums, COUNT, CADRE_F32, CADRE_SUM, NULL));
    int n = cadre_world_size(g);
    const int sum = n * (n - 1) / 2;
    RANK_CHECK(sums[COUNT - 1] == (float)sum);
}

static void more_ranks_than_cores_work(void **state)
{
    (void)state;
    run_as_processes(LINK_SHM, 9, 0, meet_often, NULL);
}

static void many_ranks_share_a_host(void **state)
{
    (void)state;
    enum { N = 64 };
    static int sockets[N * N];
    static cadre_transport *all[N];
    int before = count_descriptors();
    connect_all(LINK_SHM, N, sockets);
    for (int r = 0; r < N; r++) {
        CHECK_OK(cadre_shm_open(r, N, GENERATION, &sockets[r * N], &all[r]));
        assert_true(as_shm(all[r])->home_bytes < 5 << 20);
    }
    for (int r = 0; r < N; r++) {
        CHECK_OK(cadre_transport_progress(all[r], 0));
    }
    char *from = cadre_alloc(NBYTES);
    char *to = cadre_alloc(NBYTES);
    fill(from, NBYTES, 3);
    cadre_run out = {from, NBYTES};
    cadre_run in = {to, NBYTES};
    cadre_transfer send = {.call = &call, .runs = &out, .n_runs = 1};
    cadre_transfer receive = {.call = &call, .runs = &in, .n_runs = 1};
    CHECK_OK(cadre_transport_receive(all[0], N - 1, &receive));
    CHECK_OK(cadre_transport_send(all[N - 1], 0, &send));
    while (!receive.done) {
        CHECK_OK(cadre_transport_progress(all[0], 0));
        CHECK_OK(cadre_transport_progress(all[N - 1], 0));
    }
    assert_memory_equal(to, from, NBYTES);
    for (int r = 0; r < N; r++) {
        cadre_transport_close(all[r]);
    }
    cadre_free(from);
    cadre_free(to);
    assert_int_equal(count_descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arenas_are_reached_by_name),
        cmocka_unit_test(only_what_lies_in_one_arena_has_a_name),
        cmocka_unit_test(places_that_are_not_there_are_refused),
        cmocka_unit_test(descriptors_are_closed_once_mapped),
        cmocka_unit_test(what_is_freed_unused_is_not_told),
        cmocka_unit_test(a_full_socket_holds_nobody_up),
        cmocka_unit_test(a_collective_begins_when_its_window_has_a_name),
        cmocka_unit_test(boards_are_everybodys),
        cmocka_unit_test(a_ring_is_never_lost),
        cmocka_unit_test(what_lies_in_arenas_is_copied_once),
        cmocka_unit_test(what_cannot_be_named_is_sent),
        cmocka_unit_test(nothing_is_taken_from_who_has_left),
        cmocka_unit_test(garbage_in_a_ring_is_refused),
        cmocka_unit_test(counts_that_cannot_be_are_refused),
        cmocka_unit_test(names_out_of_bounds_are_refused),
        cmocka_unit_test(notes_that_cannot_be_are_refused),
        cmocka_unit_test(nothing_is_left_of_a_peer_that_was_killed),
        cmocka_unit_test(more_ranks_than_cores_work),
        cmocka_unit_test(many_ranks_share_a_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
