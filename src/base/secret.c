// SPDX-License-Identifier: Apache-2.0
//
// Linux: a page that no core dump shows, and memory as a file that is sealed.

#define _GNU_SOURCE // memfd_create, MADV_DONTDUMP

#include "base/secret.h"

#include "base/fail.h"
#include "base/random.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_BYTES = 32 };

struct cadre_key {
    uint8_t bytes[KEY_BYTES];
};

static cadre_status hmac(const uint8_t *key, size_t key_bytes, const void *data,
    size_t nbytes, uint8_t mac[CADRE_MAC_BYTES])
{
    if (HMAC(EVP_sha256(), key, (int)key_bytes, data, nbytes, mac, NULL) ==
        NULL) {
        return cadre_fail(
            CADRE_ERR_NO_MEMORY, "libcrypto could not compute an HMAC");
    }
    return CADRE_OK;
}

// HKDF without salt, for one block of output.
static cadre_status derive(
    const void *secret, size_t nbytes, uint8_t key[KEY_BYTES])
{
    static const uint8_t no_salt[CADRE_MAC_BYTES];
    static const uint8_t purpose[] =
        "cadre auth 1\x01"; // and the block's number
    uint8_t extracted[CADRE_MAC_BYTES];
    CADRE_TRY(hmac(no_salt, sizeof(no_salt), secret, nbytes, extracted));
    cadre_status status =
        hmac(extracted, sizeof(extracted), purpose, sizeof(purpose) - 1, key);
    OPENSSL_cleanse(extracted, sizeof(extracted));
    return status;
}

cadre_status cadre_key_derive(
    const void *secret, size_t nbytes, cadre_key **out)
{
    void *page = mmap(NULL, sizeof(cadre_key), PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return cadre_fail_errno(
            CADRE_ERR_NO_MEMORY, errno, "there is no page for a key");
    }
    (void)madvise(page, sizeof(cadre_key), MADV_DONTDUMP);
    cadre_key *key = page;
    cadre_status status = derive(secret, nbytes, key->bytes);
    if (status != CADRE_OK) {
        cadre_key_destroy(key);
        return status;
    }
    *out = key;
    return CADRE_OK;
}

void cadre_key_destroy(cadre_key *key)
{
    if (key != NULL) {
        OPENSSL_cleanse(key, sizeof(*key));
        munmap(key, sizeof(*key));
    }
}

cadre_status cadre_key_mac(const cadre_key *key, const void *data,
    size_t nbytes, uint8_t mac[CADRE_MAC_BYTES])
{
    return hmac(key->bytes, sizeof(key->bytes), data, nbytes, mac);
}

bool cadre_mac_equal(
    const uint8_t a[CADRE_MAC_BYTES], const uint8_t b[CADRE_MAC_BYTES])
{
    return CRYPTO_memcmp(a, b, CADRE_MAC_BYTES) == 0;
}

// Several processes may have inherited one file, and with it one place in it,
// which is therefore left alone.  A pipe has none.
static ssize_t read_at(int fd, void *data, size_t nbytes, size_t at)
{
    ssize_t n = pread(fd, data, nbytes, (off_t)at);
    return n < 0 && errno == ESPIPE ? read(fd, data, nbytes) : n;
}

// Reads to the end, or until data is full.
static cadre_status read_all(int fd, uint8_t *data, size_t capacity,
    cadre_deadline deadline, size_t *nbytes)
{
    *nbytes = 0;
    while (*nbytes < capacity) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int n_ready = poll(&p, 1, cadre_deadline_left_ms(deadline, INT32_MAX));
        if (n_ready == 0) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "has not been written to its end, and closed, in time");
        }
        ssize_t n = read_at(fd, data + *nbytes, capacity - *nbytes, *nbytes);
        if (n == 0) {
            return CADRE_OK;
        }
        if (n < 0 && errno != EINTR && errno != EAGAIN) {
            return cadre_fail_errno(
                CADRE_ERR_INVALID_ARG, errno, "cannot be read");
        }
        *nbytes += n > 0 ? (size_t)n : 0;
    }
    return CADRE_OK;
}

static cadre_status read_key(int fd, cadre_deadline deadline, cadre_key **out)
{
    uint8_t secret[CADRE_SECRET_MOST_BYTES + 1];
    size_t nbytes;
    cadre_status status =
        read_all(fd, secret, sizeof(secret), deadline, &nbytes);
    if (status == CADRE_OK && (nbytes < CADRE_SECRET_LEAST_BYTES ||
                                  nbytes > CADRE_SECRET_MOST_BYTES)) {
        status = cadre_fail(CADRE_ERR_INVALID_ARG,
            "holds %s%zu bytes, but a secret has from %d to %d",
            nbytes > CADRE_SECRET_MOST_BYTES ? "at least " : "", nbytes,
            CADRE_SECRET_LEAST_BYTES, CADRE_SECRET_MOST_BYTES);
    }
    if (status == CADRE_OK) {
        status = cadre_key_derive(secret, nbytes, out);
    }
    OPENSSL_cleanse(secret, sizeof(secret));
    return status;
}

cadre_status cadre_key_read_fd(int fd, cadre_deadline deadline, cadre_key **out)
{
    int flags = fcntl(fd, F_GETFD);
    if (flags < 0 || fcntl(fd, F_SETFD, flags | FD_CLOEXEC) != 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "descriptor %d is not open, but the job's secret is to be read "
            "from it",
            fd);
    }
    cadre_status status = read_key(fd, deadline, out);
    if (status == CADRE_ERR_INVALID_ARG) {
        return cadre_fail(status,
            "descriptor %d, which is to hold the job's "
            "secret, %s",
            fd, cadre_error_text());
    }
    return status;
}

// The file is one that others can neither have written nor read.
static cadre_status check_file(int fd, const char *path)
{
    struct stat s;
    if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "the secret file %s is not a regular file", path);
    }
    if (s.st_uid != geteuid()) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "the secret file %s belongs to user %u, but this process runs as "
            "user %u",
            path, (unsigned)s.st_uid, (unsigned)geteuid());
    }
    if ((s.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "the secret file %s has mode %04o, so others may get at it: "
            "chmod 600",
            path, (unsigned)s.st_mode & 07777u);
    }
    return CADRE_OK;
}

cadre_status cadre_key_read_file(const char *path, cadre_key **out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ELOOP) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "the secret file %s is a symbolic link: name the file itself",
            path);
    }
    if (fd < 0) {
        return cadre_fail_errno(CADRE_ERR_INVALID_ARG, errno,
            "the secret file %s cannot be opened", path);
    }
    cadre_status status = check_file(fd, path);
    if (status == CADRE_OK) {
        status = read_key(fd, CADRE_NO_DEADLINE, out);
        if (status == CADRE_ERR_INVALID_ARG) {
            status = cadre_fail(
                status, "the secret file %s %s", path, cadre_error_text());
        }
    }
    close(fd);
    return status;
}

cadre_status cadre_secret_make(int *fd)
{
    uint8_t secret[CADRE_SECRET_LEAST_BYTES];
    CADRE_TRY(cadre_random_secret(secret, sizeof(secret)));
    int made = memfd_create("cadre secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool filled =
        made >= 0 &&
        pwrite(made, secret, sizeof(secret), 0) == (ssize_t)sizeof(secret) &&
        fcntl(made, F_ADD_SEALS,
            F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0;
    int error = errno;
    OPENSSL_cleanse(secret, sizeof(secret));
    if (!filled) {
        if (made >= 0) {
            close(made);
        }
        return cadre_fail_errno(
            CADRE_ERR_IO, error, "there is no memory for the job's secret");
    }
    *fd = made;
    return CADRE_OK;
}
