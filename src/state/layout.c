// SPDX-License-Identifier: Apache-2.0

#include "state/layout.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/hash.h"
#include <jansson.h>
#include <string.h>

enum { SEGMENT_GRAIN = 16, MOST_NAME_BYTES = 255 };

void cadre_layout_fini(cadre_layout *layout)
{
    for (int i = 0; i < layout->n_segments; i++) {
        cadre_free(layout->segments[i].name);
    }
    for (int i = 0; i < layout->n_units; i++) {
        cadre_free(layout->units[i].name);
    }
    cadre_free(layout->segments);
    cadre_free(layout->units);
    *layout = (cadre_layout){0};
}

// Both arrays together: there are never more units than segments.
static cadre_status reserve(cadre_layout *layout)
{
    if (layout->n_segments < layout->capacity) {
        return CADRE_OK;
    }
    int capacity = layout->capacity == 0 ? 16 : layout->capacity * 2;
    cadre_segment *segments =
        cadre_alloc_array((size_t)capacity, sizeof(*segments));
    cadre_unit *units = cadre_alloc_array((size_t)capacity, sizeof(*units));
    if (segments == NULL || units == NULL) {
        cadre_free(segments);
        cadre_free(units);
        return CADRE_ERR_NO_MEMORY;
    }
    if (layout->capacity > 0) {
        memcpy(segments, layout->segments,
            (size_t)layout->n_segments * sizeof(*segments));
        memcpy(units, layout->units, (size_t)layout->n_units * sizeof(*units));
    }
    cadre_free(layout->segments);
    cadre_free(layout->units);
    layout->segments = segments;
    layout->units = units;
    layout->capacity = capacity;
    return CADRE_OK;
}

// The bytes of the UTF-8 character at text, or 0 if it is none: overlong forms,
// surrogates and numbers beyond U+10FFFF are none (RFC 3629, section 4).
static size_t utf8_bytes(const unsigned char *text)
{
    unsigned char first = text[0];
    if (first < 0x80) {
        return 1;
    }
    size_t n = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    unsigned char lowest = 0x80; // of the second byte
    unsigned char highest = 0xbf;
    if (first < 0xc2 || first > 0xf4) {
        return 0;
    }
    if (first == 0xe0) {
        lowest = 0xa0;
    } else if (first == 0xed) {
        highest = 0x9f;
    } else if (first == 0xf0) {
        lowest = 0x90;
    } else if (first == 0xf4) {
        highest = 0x8f;
    }
    if (text[1] < lowest || text[1] > highest) {
        return 0;
    }
    for (size_t i = 2; i < n; i++) {
        if (text[i] < 0x80 || text[i] > 0xbf) {
            return 0;
        }
    }
    return n;
}

static bool usable_name(const char *name)
{
    size_t nbytes = strlen(name);
    if (nbytes == 0 || nbytes > MOST_NAME_BYTES) {
        return false;
    }
    const unsigned char *at = (const unsigned char *)name;
    while (*at != '\0') {
        size_t n = utf8_bytes(at);
        if (n == 0 || *at < 0x20 || *at == 0x7f) {
            return false;
        }
        at += n;
    }
    // A model file has its metadata under this name.
    return strcmp(name, "__metadata__") != 0;
}

// The product of the extents, or 0 if there is none to be had.
static size_t element_count(const int64_t *shape, int n_dims)
{
    // A plane's bytes must be countable, with some room for gaps.
    const size_t most = SIZE_MAX / 16;
    size_t count = 1;
    for (int i = 0; i < n_dims; i++) {
        if (shape[i] < 1 || (uint64_t)shape[i] > most / count) {
            return 0;
        }
        count *= (size_t)shape[i];
    }
    return count;
}

static cadre_status validate(const cadre_layout *layout, const char *name,
    const char *unit, const int64_t *shape, int n_dims)
{
    if (!usable_name(name) || !usable_name(unit)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "a parameter's name and unit need 1 to %d bytes of UTF-8 without "
            "control characters, and not '__metadata__'",
            MOST_NAME_BYTES);
    }
    for (int i = 0; i < layout->n_segments; i++) {
        if (strcmp(layout->segments[i].name, name) == 0) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "there is a parameter '%s' already", name);
        }
    }
    if (n_dims < 1 || n_dims > CADRE_LAYOUT_MAX_DIMS ||
        element_count(shape, n_dims) == 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "the shape of parameter '%s' needs 1 to %d extents of at least 1 "
            "that fit into memory",
            name, CADRE_LAYOUT_MAX_DIMS);
    }
    return CADRE_OK;
}

static size_t round_up(size_t value, size_t grain)
{
    return (value + grain - 1) / grain * grain;
}

// Goes on with the last unit or opens a new one behind it; -1 without memory.
static int unit_for(cadre_layout *layout, const char *name)
{
    int last = layout->n_units - 1;
    if (last >= 0 && strcmp(layout->units[last].name, name) == 0) {
        return last;
    }
    size_t start = round_up(layout->n_elements, CADRE_QUANTUM);
    cadre_unit unit = {
        .name = cadre_alloc_string(name),
        .lo = start,
        .hi = start,
        .first_segment = layout->n_segments,
    };
    if (unit.name == NULL) {
        return -1;
    }
    layout->units[layout->n_units] = unit;
    return layout->n_units++;
}

cadre_status cadre_layout_add(cadre_layout *layout, const char *name,
    const char *unit, const int64_t *shape, int n_dims, bool frozen)
{
    CADRE_TRY(validate(layout, name, unit, shape, n_dims));
    CADRE_TRY(reserve(layout));

    cadre_segment segment = {
        .name = cadre_alloc_string(name), .n_dims = n_dims, .frozen = frozen};
    segment.unit = segment.name == NULL ? -1 : unit_for(layout, unit);
    if (segment.unit < 0) {
        cadre_free(segment.name);
        return CADRE_ERR_NO_MEMORY;
    }
    memcpy(segment.shape, shape, (size_t)n_dims * sizeof(*shape));
    segment.count = element_count(shape, n_dims);

    cadre_unit *u = &layout->units[segment.unit];
    segment.offset = round_up(u->hi, SEGMENT_GRAIN);
    u->hi = segment.offset + segment.count;
    u->n_segments++;
    layout->n_elements = u->hi;
    layout->segments[layout->n_segments++] = segment;
    return CADRE_OK;
}

void cadre_layout_no_decay(cadre_layout *layout)
{
    CADRE_ASSERT(layout->n_segments > 0);
    layout->segments[layout->n_segments - 1].no_decay = true;
}

void cadre_layout_buffer(cadre_layout *layout)
{
    CADRE_ASSERT(layout->n_segments > 0);
    layout->segments[layout->n_segments - 1].buffer = true;
}

uint64_t cadre_layout_hash(const cadre_layout *layout)
{
    uint64_t hash = 0;
    for (int i = 0; i < layout->n_segments; i++) {
        const cadre_segment *s = &layout->segments[i];
        const char *unit = layout->units[s->unit].name;
        uint64_t flags = (s->frozen ? 1u : 0u) | (s->no_decay ? 2u : 0u) |
                         (s->buffer ? 4u : 0u);
        uint64_t numbers[3] = {s->offset, (uint64_t)s->n_dims, flags};
        // Each hash is the next one's seed.  Names with their final zero.
        hash = cadre_hash(s->name, strlen(s->name) + 1, hash);
        hash = cadre_hash(unit, strlen(unit) + 1, hash);
        hash =
            cadre_hash(s->shape, (size_t)s->n_dims * sizeof(s->shape[0]), hash);
        hash = cadre_hash(numbers, sizeof(numbers), hash);
    }
    return hash;
}

int cadre_layout_slices(const cadre_layout *layout, int unit, cadre_shard range,
    cadre_slice *slices)
{
    const cadre_unit *u = &layout->units[unit];
    int n = 0;
    for (int i = u->first_segment; i < u->first_segment + u->n_segments; i++) {
        const cadre_segment *s = &layout->segments[i];
        size_t lo = s->offset > range.lo ? s->offset : range.lo;
        size_t end = s->offset + s->count;
        size_t hi = end < range.hi ? end : range.hi;
        if (s->frozen || lo >= hi) {
            continue;
        }
        if (slices != NULL) {
            slices[n] =
                (cadre_slice){.segment = i, .offset = lo, .count = hi - lo};
        }
        n++;
    }
    return n;
}

static json_t *segment_json(const cadre_layout *layout, const cadre_segment *s)
{
    json_t *shape = json_array();
    for (int i = 0; i < s->n_dims; i++) {
        json_array_append_new(shape, json_integer(s->shape[i]));
    }
    const cadre_unit *unit = &layout->units[s->unit];
    return json_pack("{s:s, s:o, s:I, s:I, s:s, s:I, s:b, s:b}", "name",
        s->name, "shape", shape, "offset", (json_int_t)s->offset, "count",
        (json_int_t)s->count, "unit", unit->name, "unit_start",
        (json_int_t)unit->lo, "frozen", (int)s->frozen, "buffer",
        (int)s->buffer);
}

char *cadre_layout_json(const cadre_layout *layout)
{
    json_t *segments = json_array();
    for (int i = 0; i < layout->n_segments; i++) {
        json_array_append_new(
            segments, segment_json(layout, &layout->segments[i]));
    }
    json_t *root = json_pack("{s:i, s:i, s:I, s:o}", "version", 1, "quantum",
        (int)CADRE_QUANTUM, "elements", (json_int_t)layout->n_elements,
        "segments", segments);
    size_t nbytes = root == NULL ? 0 : json_dumpb(root, NULL, 0, JSON_COMPACT);
    char *text = nbytes == 0 ? NULL : cadre_alloc(nbytes + 1);
    if (text != NULL) {
        json_dumpb(root, text, nbytes, JSON_COMPACT);
    } else {
        (void)cadre_fail(CADRE_ERR_NO_MEMORY, "out of memory for the layout");
    }
    json_decref(root);
    return text;
}

// A piece of at most a quantum, with every NaN read as the same one.
static uint64_t hash_one(const float *x, size_t index, size_t count)
{
    uint32_t bits[CADRE_QUANTUM];
    memcpy(bits, x, count * sizeof(*x));
    for (size_t i = 0; i < count; i++) {
        if ((bits[i] & 0x7fffffffu) > 0x7f800000u) {
            bits[i] = 0x7fc00000u;
        }
    }
    return cadre_hash(bits, count * sizeof(bits[0]), index);
}

uint64_t cadre_piece_hash(const float *x, size_t index, size_t count)
{
    uint64_t sum = 0;
    while (count > 0) {
        size_t left = CADRE_QUANTUM - index % CADRE_QUANTUM;
        size_t part = left < count ? left : count;
        sum += hash_one(x, index, part);
        x += part;
        index += part;
        count -= part;
    }
    return sum;
}
