// SPDX-License-Identifier: Apache-2.0

#include "train/tensorboard.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/file.h"
#include "kernel/crc32c.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NAME_BEGINS "events.out.tfevents."

enum {
    MAX_SCALARS = 16,
    TAG_BYTES = 64,
    VALUE_BYTES = 2 + 2 + TAG_BYTES + 5, // a scalar's message and its head
    SUMMARY_BYTES = MAX_SCALARS * VALUE_BYTES,
    EVENT_BYTES = SUMMARY_BYTES + 32,
    RECORD_BYTES = 8 + 4 + EVENT_BYTES + 4, // length, checksum, data, checksum
};

struct cadre_tensorboard {
    FILE *stream;
    char *path;
};

// --- protobuf: keys are field number * 8 + kind of value

enum { VARINT = 0, FIXED64 = 1, DELIMITED = 2, FIXED32 = 5 };

static void put_varint(cadre_writer *w, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) {
        const uint8_t byte = (uint8_t)(value | 0x80);
        cadre_write_bytes(w, &byte, 1);
    }
    const uint8_t byte = (uint8_t)value;
    cadre_write_bytes(w, &byte, 1);
}

static void put_key(cadre_writer *w, unsigned field, unsigned kind)
{
    put_varint(w, field * 8U + kind);
}

static void put_delimited(
    cadre_writer *w, unsigned field, const void *data, size_t nbytes)
{
    put_key(w, field, DELIMITED);
    put_varint(w, nbytes);
    cadre_write_bytes(w, data, nbytes);
}

static void put_wall_time(cadre_writer *w)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    uint64_t bits;
    memcpy(&bits, &seconds, sizeof(bits));
    put_key(w, 1, FIXED64); // Event.wall_time
    cadre_write_u64(w, bits);
}

// Summary.Value: tag and simple_value.
static void put_scalar(cadre_writer *summary, const cadre_scalar *s)
{
    uint8_t bytes[VALUE_BYTES];
    cadre_writer w = {.data = bytes, .capacity = sizeof(bytes), .ok = true};
    float value = (float)s->value;
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put_delimited(&w, 1, s->tag, strlen(s->tag));
    put_key(&w, 2, FIXED32);
    cadre_write_u32(&w, bits);
    CADRE_ASSERT(w.ok);
    put_delimited(summary, 1, bytes, w.used); // Summary.value
}

// --- records

// Checksums are disguised, since data may itself hold checksums.
static uint32_t masked_crc(const void *data, size_t nbytes)
{
    uint32_t crc = cadre_crc32c(0, data, nbytes);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

static cadre_status write_record(
    cadre_tensorboard *file, const cadre_writer *data)
{
    CADRE_ASSERT(data->ok);
    uint8_t bytes[RECORD_BYTES];
    cadre_writer w = {.data = bytes, .capacity = sizeof(bytes), .ok = true};
    cadre_write_u64(&w, data->used);
    cadre_write_u32(&w, masked_crc(bytes, 8));
    cadre_write_bytes(&w, data->data, data->used);
    cadre_write_u32(&w, masked_crc(data->data, data->used));
    if (fwrite(bytes, 1, w.used, file->stream) != w.used ||
        fflush(file->stream) != 0) {
        return cadre_fail_errno(
            CADRE_ERR_IO, errno, "cannot write '%s'", file->path);
    }
    return CADRE_OK;
}

// The first record of a file says what the others are.
static cadre_status write_version(cadre_tensorboard *file)
{
    static const char version[] = "brain.Event:2";
    uint8_t bytes[EVENT_BYTES];
    cadre_writer w = {.data = bytes, .capacity = sizeof(bytes), .ok = true};
    put_wall_time(&w);
    put_delimited(&w, 3, version, sizeof(version) - 1); // Event.file_version
    return write_record(file, &w);
}

cadre_status cadre_tensorboard_write(cadre_tensorboard *file, int64_t step,
    const cadre_scalar *scalars, int n_scalars)
{
    CADRE_ASSERT(n_scalars <= MAX_SCALARS);
    uint8_t values[SUMMARY_BYTES];
    cadre_writer s = {.data = values, .capacity = sizeof(values), .ok = true};
    for (int i = 0; i < n_scalars; i++) {
        put_scalar(&s, &scalars[i]);
    }
    uint8_t bytes[EVENT_BYTES];
    cadre_writer w = {.data = bytes, .capacity = sizeof(bytes), .ok = true};
    put_wall_time(&w);
    put_key(&w, 2, VARINT); // Event.step
    put_varint(&w, (uint64_t)step);
    put_delimited(&w, 5, values, s.used); // Event.summary
    return write_record(file, &w);
}

// --- files

void cadre_tensorboard_clear(const char *folder)
{
    DIR *entries = opendir(folder);
    if (entries == NULL) {
        return;
    }
    for (struct dirent *e; (e = readdir(entries)) != NULL;) {
        if (strncmp(e->d_name, NAME_BEGINS, strlen(NAME_BEGINS)) == 0) {
            (void)unlinkat(dirfd(entries), e->d_name, 0);
        }
    }
    closedir(entries);
}

static char *make_path(const char *folder)
{
    char host[128] = "host";
    char name[sizeof(host) + 64];
    (void)gethostname(host, sizeof(host) - 1);
    snprintf(name, sizeof(name), NAME_BEGINS "%010lld.%s.%ld",
        (long long)time(NULL), host, (long)getpid());
    return cadre_path_join(folder, name);
}

cadre_status cadre_tensorboard_open(const char *folder, cadre_tensorboard **out)
{
    cadre_tensorboard *file = cadre_alloc(sizeof(*file));
    if (file == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = CADRE_ERR_NO_MEMORY;
    file->path = make_path(folder);
    if (file->path != NULL) {
        file->stream = fopen(file->path, "wbe");
        status = file->stream != NULL ? write_version(file)
                                      : cadre_fail_errno(CADRE_ERR_IO, errno,
                                            "cannot write '%s'", file->path);
    }
    if (status != CADRE_OK) {
        cadre_tensorboard_close(file);
        return status;
    }
    *out = file;
    return CADRE_OK;
}

void cadre_tensorboard_close(cadre_tensorboard *file)
{
    if (file == NULL) {
        return;
    }
    if (file->stream != NULL) {
        fclose(file->stream);
    }
    cadre_free(file->path);
    cadre_free(file);
}
