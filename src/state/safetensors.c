// SPDX-License-Identifier: Apache-2.0

#include "state/safetensors.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "base/file.h"
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LENGTH_BYTES = 8,
    HEADER_GRAIN = 8,              // the tensors begin at a multiple of it
    MOST_HEADER_BYTES = 100 << 20, // the format's own limit
};

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors are written as they lie in memory: little-endian hosts only"
#endif

// --- writing ---

static json_t *header_json(
    const cadre_tensor *tensors, int n, const char *key, const char *value)
{
    json_t *root =
        json_pack("{s:{s:s, s:s}}", "__metadata__", "format", "pt", key, value);
    json_int_t offset = 0;
    for (int i = 0; root != NULL && i < n; i++) {
        json_t *shape = json_array();
        for (int j = 0; j < tensors[i].n_dims; j++) {
            json_array_append_new(shape, json_integer(tensors[i].shape[j]));
        }
        json_int_t end =
            offset + (json_int_t)(tensors[i].count * sizeof(float));
        json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32",
            "shape", shape, "data_offsets", offset, end);
        if (json_object_set_new(root, tensors[i].name, entry) != 0) {
            json_decref(root);
            return NULL;
        }
        offset = end;
    }
    return root;
}

// Dumps into text with blanks up to the grain; NULL without memory.
static char *header_text(const json_t *header, size_t *nbytes)
{
    size_t used = json_dumpb(header, NULL, 0, JSON_COMPACT);
    size_t padded = (used + HEADER_GRAIN - 1) / HEADER_GRAIN * HEADER_GRAIN;
    char *text = used == 0 ? NULL : cadre_alloc(padded);
    if (text != NULL) {
        json_dumpb(header, text, used, JSON_COMPACT);
        memset(text + used, ' ', padded - used);
        *nbytes = padded;
    }
    return text;
}

static bool write_all(FILE *stream, const void *data, size_t nbytes)
{
    return fwrite(data, 1, nbytes, stream) == nbytes;
}

static bool write_content(FILE *stream, const char *header, size_t header_bytes,
    const cadre_tensor *tensors, int n)
{
    uint8_t length[LENGTH_BYTES];
    cadre_store_u64(length, header_bytes);
    bool ok = write_all(stream, length, sizeof(length)) &&
              write_all(stream, header, header_bytes);
    for (int i = 0; ok && i < n; i++) {
        ok = write_all(
            stream, tensors[i].values, tensors[i].count * sizeof(float));
    }
    return ok;
}

cadre_status cadre_safetensors_write(const char *path,
    const cadre_tensor *tensors, int n, const char *key, const char *value)
{
    json_t *json = header_json(tensors, n, key, value);
    size_t header_bytes = 0;
    char *header = json == NULL ? NULL : header_text(json, &header_bytes);
    json_decref(json);
    if (header == NULL) {
        return cadre_fail(
            CADRE_ERR_NO_MEMORY, "out of memory for the header of '%s'", path);
    }

    cadre_new_file file;
    cadre_status status = cadre_new_file_open(path, &file);
    if (status == CADRE_OK) {
        if (write_content(file.stream, header, header_bytes, tensors, n)) {
            status = cadre_new_file_commit(&file);
        } else {
            status = cadre_fail_errno(
                CADRE_ERR_IO, errno, "cannot write '%s'", path);
            cadre_new_file_discard(&file);
        }
    }
    cadre_free(header);
    return status;
}

// --- reading ---

// An open file, its parsed header, and how many bytes of tensors follow it.
typedef struct reader {
    const char *path;
    FILE *stream;
    json_t *header;
    uint64_t data_start;
    uint64_t data_bytes;
} reader;

static cadre_status damaged(const reader *r, const char *how)
{
    return cadre_fail(
        CADRE_ERR_CORRUPT, "'%s' is no usable model file: %s", r->path, how);
}

static cadre_status parse_header(reader *r, size_t header_bytes)
{
    char *text = cadre_alloc(header_bytes);
    if (text == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = CADRE_OK;
    if (fread(text, 1, header_bytes, r->stream) != header_bytes) {
        status = damaged(r, "its header is cut");
    } else {
        json_error_t error;
        r->header =
            json_loadb(text, header_bytes, JSON_REJECT_DUPLICATES, &error);
        if (!json_is_object(r->header)) {
            status = damaged(r, "its header is not JSON");
        }
    }
    cadre_free(text);
    return status;
}

static cadre_status open_reader(const char *path, reader *r)
{
    *r = (reader){.path = path};
    int fd;
    CADRE_TRY(cadre_regular_file_open(path, &fd));
    r->stream = fdopen(fd, "r");
    if (r->stream == NULL) {
        close(fd);
        return cadre_fail_errno(CADRE_ERR_IO, errno, "cannot read '%s'", path);
    }
    struct stat about;
    uint8_t length[LENGTH_BYTES];
    if (fstat(fd, &about) != 0 ||
        fread(length, 1, sizeof(length), r->stream) != sizeof(length)) {
        return damaged(r, "it is no file of at least 8 bytes");
    }
    uint64_t rest = (uint64_t)about.st_size - LENGTH_BYTES;
    uint64_t header_bytes = cadre_load_u64(length);
    if (header_bytes > rest || header_bytes > MOST_HEADER_BYTES) {
        return damaged(r, "its header is longer than the file");
    }
    r->data_start = LENGTH_BYTES + header_bytes;
    r->data_bytes = rest - header_bytes;
    return parse_header(r, (size_t)header_bytes);
}

static void close_reader(reader *r)
{
    if (r->stream != NULL) {
        fclose(r->stream);
    }
    json_decref(r->header);
}

static bool same_shape(const json_t *shape, const cadre_tensor *tensor)
{
    if (!json_is_array(shape) ||
        json_array_size(shape) != (size_t)tensor->n_dims) {
        return false;
    }
    for (int i = 0; i < tensor->n_dims; i++) {
        const json_t *extent = json_array_get(shape, (size_t)i);
        if (!json_is_integer(extent) ||
            json_integer_value(extent) != tensor->shape[i]) {
            return false;
        }
    }
    return true;
}

static cadre_status read_tensor(reader *r, const cadre_tensor *tensor)
{
    const json_t *entry = json_object_get(r->header, tensor->name);
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (entry == NULL || dtype == NULL || strcmp(dtype, "F32") != 0 ||
        !same_shape(json_object_get(entry, "shape"), tensor)) {
        return cadre_fail(CADRE_ERR_CORRUPT,
            "'%s' has no F32 tensor '%s' of this model's shape: it is another "
            "model's file",
            r->path, tensor->name);
    }
    json_int_t begin = json_integer_value(json_array_get(offsets, 0));
    json_int_t end = json_integer_value(json_array_get(offsets, 1));
    uint64_t nbytes = tensor->count * sizeof(float);
    if (json_array_size(offsets) != 2 || begin < 0 || end < begin ||
        (uint64_t)end > r->data_bytes || (uint64_t)(end - begin) != nbytes) {
        return damaged(r, "a tensor lies outside the file, which may be cut");
    }
    if (fseeko(r->stream, (off_t)(r->data_start + (uint64_t)begin), SEEK_SET) !=
            0 ||
        fread(tensor->values, 1, (size_t)nbytes, r->stream) != nbytes) {
        return cadre_fail_errno(
            CADRE_ERR_IO, errno, "cannot read '%s'", r->path);
    }
    return CADRE_OK;
}

cadre_status cadre_safetensors_read(
    const char *path, const cadre_tensor *tensors, int n)
{
    reader r;
    cadre_status status = open_reader(path, &r);
    for (int i = 0; status == CADRE_OK && i < n; i++) {
        status = read_tensor(&r, &tensors[i]);
    }
    close_reader(&r);
    return status;
}
