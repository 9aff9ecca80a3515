// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "base/secret.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/cadre-secret-XXXXXX";
static char path[64];

static const char *write_file(size_t nbytes, mode_t mode)
{
    snprintf(path, sizeof(path), "%s/secret", folder);
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    for (size_t i = 0; i < nbytes; i++) {
        char byte = (char)i;
        assert_int_equal(write(fd, &byte, 1), 1);
    }
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    return path;
}

static void check_same_key(const cadre_key *a, const cadre_key *b, bool same)
{
    uint8_t of_a[CADRE_MAC_BYTES];
    uint8_t of_b[CADRE_MAC_BYTES];
    CHECK_OK(cadre_key_mac(a, "message", 7, of_a));
    CHECK_OK(cadre_key_mac(b, "message", 7, of_b));
    assert_int_equal(cadre_mac_equal(of_a, of_b), same);
}

// Computed with another implementation (Python's hmac and hashlib).
static void keys_and_macs_are_those_of_the_standards(void **state)
{
    (void)state;
    static const uint8_t wanted[CADRE_MAC_BYTES] = {
        0x93,
        0x4f,
        0xe7,
        0x89,
        0xd1,
        0x42,
        0x11,
        0x84,
        0x73,
        0xc3,
        0x5c,
        0x25,
        0xfb,
        0xc9,
        0x88,
        0x7e,
        0xb8,
        0xe6,
        0x74,
        0x56,
        0x07,
        0x53,
        0x0c,
        0x02,
        0x63,
        0x3c,
        0x9a,
        0x7a,
        0xc2,
        0x88,
        0x84,
        0x21,
    };
    uint8_t secret[32];
    uint8_t mac[CADRE_MAC_BYTES];
    cadre_key *key;
    for (size_t i = 0; i < sizeof(secret); i++) {
        secret[i] = (uint8_t)i;
    }
    CHECK_OK(cadre_key_derive(secret, sizeof(secret), &key));
    CHECK_OK(cadre_key_mac(key, "message", 7, mac));
    assert_memory_equal(mac, wanted, sizeof(mac));
    cadre_key_destroy(key);
    cadre_key_destroy(NULL);
}

static void macs_differ_by_any_bit_of_anything(void **state)
{
    (void)state;
    uint8_t first[CADRE_MAC_BYTES];
    uint8_t second[CADRE_MAC_BYTES];
    cadre_key *key;
    cadre_key *other;
    CHECK_OK(cadre_key_derive("", 0, &key));
    CHECK_OK(cadre_key_derive("x", 1, &other));
    check_same_key(key, other, false);
    CHECK_OK(cadre_key_mac(key, "ab", 2, first));
    CHECK_OK(cadre_key_mac(key, "ab", 1, second));
    assert_false(cadre_mac_equal(first, second));
    for (size_t bit = 0; bit < 8 * sizeof(first); bit++) {
        memcpy(second, first, sizeof(first));
        assert_true(cadre_mac_equal(first, second));
        second[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(cadre_mac_equal(first, second));
    }
    cadre_key_destroy(key);
    cadre_key_destroy(other);
}

static void what_is_made_can_be_read_often_and_not_changed(void **state)
{
    (void)state;
    int fd;
    int next;
    cadre_key *first;
    cadre_key *second;
    cadre_key *other;
    CHECK_OK(cadre_secret_make(&fd));
    CHECK_OK(cadre_secret_make(&next));
    assert_int_equal(pwrite(fd, "x", 1, 0), -1);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(fcntl(fd, F_SETFD, 0), 0); // as one that was inherited
    CHECK_OK(cadre_key_read_fd(fd, CADRE_NO_DEADLINE, &first));
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_OK(cadre_key_read_fd(fd, CADRE_NO_DEADLINE, &second));
    CHECK_OK(cadre_key_read_fd(next, CADRE_NO_DEADLINE, &other));
    check_same_key(first, second, true);
    check_same_key(first, other, false);
    cadre_key_destroy(first);
    cadre_key_destroy(second);
    cadre_key_destroy(other);
    close(fd);
    close(next);
}

static void a_pipe_is_read_to_its_end(void **state)
{
    (void)state;
    int ends[2];
    uint8_t secret[40] = {7};
    cadre_key *key;
    cadre_key *wanted;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], secret, 10), 10);
    assert_int_equal(write(ends[1], secret + 10, 30), 30);
    CHECK_FAILS(cadre_key_read_fd(ends[0], cadre_deadline_in_ms(20), &key),
        CADRE_ERR_INVALID_ARG, "has not been written to its end, and closed");
    assert_int_equal(write(ends[1], secret, sizeof(secret)), sizeof(secret));
    close(ends[1]);
    CHECK_OK(cadre_key_read_fd(ends[0], CADRE_NO_DEADLINE, &key));
    CHECK_OK(cadre_key_derive(secret, sizeof(secret), &wanted));
    check_same_key(key, wanted, true);
    cadre_key_destroy(key);
    cadre_key_destroy(wanted);
    CHECK_FAILS(cadre_key_read_fd(ends[0], CADRE_NO_DEADLINE, &key),
        CADRE_ERR_INVALID_ARG, "holds 0 bytes, but a secret has from 32");
    close(ends[0]);
    CHECK_FAILS(cadre_key_read_fd(ends[0], CADRE_NO_DEADLINE, &key),
        CADRE_ERR_INVALID_ARG, "is not open");
}

static void a_file_gives_the_key_of_its_bytes(void **state)
{
    (void)state;
    uint8_t secret[32];
    cadre_key *key;
    cadre_key *wanted;
    for (size_t i = 0; i < sizeof(secret); i++) {
        secret[i] = (uint8_t)i;
    }
    CHECK_OK(cadre_key_derive(secret, sizeof(secret), &wanted));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(cadre_key_read_file(
            write_file(sizeof(secret), i == 0 ? 0600 : 0400), &key));
        check_same_key(key, wanted, true);
        cadre_key_destroy(key);
    }
    cadre_key_destroy(wanted);
}

static void files_that_others_may_know_are_refused(void **state)
{
    (void)state;
    static const mode_t modes[] = {0644, 0640, 0604, 0620, 0602, 0610, 0601};
    cadre_key *key;
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        char words[32];
        snprintf(words, sizeof(words), "has mode %04o", (unsigned)modes[i]);
        CHECK_FAILS(cadre_key_read_file(write_file(32, modes[i]), &key),
            CADRE_ERR_INVALID_ARG, words);
    }
    if (geteuid() == 0) {
        write_file(32, 0600);
        assert_int_equal(chown(path, 4711, 0), 0);
        CHECK_FAILS(cadre_key_read_file(path, &key), CADRE_ERR_INVALID_ARG,
            "belongs to user 4711, but this process runs as user 0");
    }
}

static void what_is_no_secret_file_is_refused(void **state)
{
    (void)state;
    cadre_key *key;
    char link[80];
    CHECK_FAILS(cadre_key_read_file(write_file(31, 0600), &key),
        CADRE_ERR_INVALID_ARG, "/secret holds 31 bytes, but");
    CHECK_FAILS(cadre_key_read_file(write_file(0, 0600), &key),
        CADRE_ERR_INVALID_ARG, "holds 0 bytes");
    CHECK_OK(cadre_key_read_file(write_file(4096, 0600), &key));
    cadre_key_destroy(key);
    CHECK_FAILS(cadre_key_read_file(write_file(5000, 0600), &key),
        CADRE_ERR_INVALID_ARG, "holds at least 4097 bytes");
    CHECK_FAILS(cadre_key_read_file("/no/such/file", &key),
        CADRE_ERR_INVALID_ARG, "/no/such/file cannot be opened: No such file");
    CHECK_FAILS(cadre_key_read_file(folder, &key), CADRE_ERR_INVALID_ARG,
        "is not a regular file");
    snprintf(link, sizeof(link), "%s/link", folder);
    assert_int_equal(symlink(write_file(32, 0600), link), 0);
    CHECK_FAILS(cadre_key_read_file(link, &key), CADRE_ERR_INVALID_ARG,
        "is a symbolic link: name the file itself");
    unlink(link);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0); // nobody writes to it
    CHECK_FAILS(cadre_key_read_file(path, &key), CADRE_ERR_INVALID_ARG,
        "is not a regular file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_and_macs_are_those_of_the_standards),
        cmocka_unit_test(macs_differ_by_any_bit_of_anything),
        cmocka_unit_test(what_is_made_can_be_read_often_and_not_changed),
        cmocka_unit_test(a_pipe_is_read_to_its_end),
        cmocka_unit_test(a_file_gives_the_key_of_its_bytes),
        cmocka_unit_test(files_that_others_may_know_are_refused),
        cmocka_unit_test(what_is_no_secret_file_is_refused),
    };
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(folder);
    return failed;
}
