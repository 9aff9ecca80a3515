// SPDX-License-Identifier: Apache-2.0
//
// Segments: what is made, and what of a peer's is taken.

#define _GNU_SOURCE // memfd_create, F_ADD_SEALS

#include "support/check.h"

#include "transport/shm_segment.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
};

static size_t page;

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

static void whole_pages_are_made(void **state)
{
    (void)state;
    assert_int_equal(cadre_segment_bytes(0), page);
    assert_int_equal(cadre_segment_bytes(1), page);
    assert_int_equal(cadre_segment_bytes(page), page);
    assert_int_equal(cadre_segment_bytes(page + 1), 2 * page);
    assert_int_equal(cadre_segment_bytes(SIZE_MAX), 0);
}

static void both_sides_see_the_same_memory(void **state)
{
    (void)state;
    int before = count_descriptors();
    int fd = -1;
    void *own;
    void *other = NULL;
    CHECK_OK(cadre_segment_create(3 * page, &fd, &own));
    for (size_t i = 0; i < 3 * page; i++) {
        assert_int_equal(((char *)own)[i], 0);
    }
    assert_int_equal(fcntl(fd, F_GET_SEALS), SEALS);
    assert_int_not_equal(ftruncate(fd, 0), 0);
    assert_int_not_equal(ftruncate(fd, (off_t)(4 * page)), 0);
    int passed = dup(fd);
    close(fd);
    CHECK_OK(cadre_segment_map(passed, 3 * page, &other));
    assert_ptr_not_equal(own, other);
    ((char *)own)[5] = 'a';
    ((char *)other)[3 * page - 1] = 'b';
    assert_int_equal(((char *)other)[5], 'a');
    assert_int_equal(((char *)own)[3 * page - 1], 'b');

    // What one side gives back, the other keeps.
    cadre_segment_unmap(own, 3 * page);
    assert_int_equal(((char *)other)[5], 'a');
    cadre_segment_unmap(other, 3 * page);
    assert_int_equal(count_descriptors(), before);
}

static void a_reserved_place_is_taken(void **state)
{
    (void)state;
    int fd = -1;
    void *own;
    void *place;
    CHECK_OK(cadre_segment_reserve(page, &place));
    const char *seen = place;
    assert_int_equal(seen[7], 0);
    CHECK_OK(cadre_segment_create(page, &fd, &own));
    ((char *)own)[7] = 'x';
    void *mapped = place;
    CHECK_OK(cadre_segment_map(fd, page, &mapped));
    assert_ptr_equal(mapped, place);
    assert_int_equal(seen[7], 'x');
    cadre_segment_unmap(own, page);
    cadre_segment_unmap(place, page);
}

// A file of memory of a peer who does not keep to it.
static int other_file(size_t nbytes, size_t with_pages, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)nbytes), 0);
    assert_true(with_pages == 0 || fallocate(fd, 0, 0, (off_t)with_pages) == 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void refuse(int fd, size_t nbytes, const char *words)
{
    void *memory = NULL;
    CHECK_FAILS(
        cadre_segment_map(fd, nbytes, &memory), CADRE_ERR_CORRUPT, words);
    assert_null(memory);
    assert_int_equal(fcntl(fd, F_GETFD), -1); // closed all the same
}

static void what_is_no_sealed_segment_is_refused(void **state)
{
    (void)state;
    int ends[2];
    refuse(other_file(page, page, 0), page, "sealed");
    refuse(other_file(page, page, F_SEAL_SHRINK | F_SEAL_GROW), page, "sealed");
    refuse(other_file(page, page, F_SEAL_GROW | F_SEAL_SEAL), page, "sealed");
    refuse(other_file(page, page, F_SEAL_SHRINK | F_SEAL_SEAL), page, "sealed");
    assert_int_equal(pipe(ends), 0);
    refuse(ends[0], page, "sealed");
    refuse(open("/dev/zero", O_RDWR | O_CLOEXEC), page, "sealed");
    close(ends[1]);
}

static void another_size_is_refused(void **state)
{
    (void)state;
    refuse(other_file(page, page, SEALS), 2 * page, "were announced");
    refuse(other_file(2 * page, 2 * page, SEALS), page, "were announced");
    refuse(other_file(page, page, SEALS), 0, "were announced");
    refuse(other_file(page, page, SEALS), page - 1, "were announced");
    refuse(other_file(page, page, SEALS), SIZE_MAX, "were announced");
    refuse(other_file(page - 1, page - 1, SEALS), page - 1, "were announced");
    refuse(other_file(0, 0, SEALS), 0, "were announced");
}

// Those pages would be made at a moment when there may be none.
static void missing_pages_are_refused(void **state)
{
    (void)state;
    refuse(other_file(4 * page, 0, SEALS), 4 * page, "pages missing");
    refuse(other_file(4 * page, 3 * page, SEALS), 4 * page, "pages missing");
}

static void too_much_is_refused_beforehand(void **state)
{
    (void)state;
    int before = count_descriptors();
    int fd = -1;
    void *memory = NULL;
    CHECK_FAILS(cadre_segment_create((size_t)1 << 50, &fd, &memory),
        CADRE_ERR_NO_MEMORY, "1125899906842624 bytes of shared memory");
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    struct rlimit low = {.rlim_cur = page, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    cadre_status status = cadre_segment_create(2 * page, &fd, &memory);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    CHECK_FAILS(status, CADRE_ERR_NO_MEMORY, "ulimit -f");
    assert_int_equal(fd, -1);
    assert_null(memory);
    assert_int_equal(count_descriptors(), before);
}

int main(void)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_pages_are_made),
        cmocka_unit_test(both_sides_see_the_same_memory),
        cmocka_unit_test(a_reserved_place_is_taken),
        cmocka_unit_test(what_is_no_sealed_segment_is_refused),
        cmocka_unit_test(another_size_is_refused),
        cmocka_unit_test(missing_pages_are_refused),
        cmocka_unit_test(too_much_is_refused_beforehand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
