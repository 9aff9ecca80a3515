// SPDX-License-Identifier: Apache-2.0

#include "parallel/bucket.h"

#include "base/alloc.h"
#include "kernel/squares.h"
#include <string.h>

enum {
    // What the first and the last bucket have at most, in time.
    EDGE_BYTES = 1 << 20,
    // A large model is cut into so many buckets at least.
    LEAST_BUCKETS = 16,
};

// How much a bucket holds, in elements.
typedef struct limits {
    size_t edge; // the first and the last
    size_t most; // the others
} limits;

// A bucket in the making: the units it merges, or a chunk of one.
typedef struct cut {
    int first_unit;
    int n_units;
    int chunk; // of n_chunks, for every owner's shard alike
    int n_chunks;
} cut;

// Elements of a unit that are not frozen.
static size_t unit_count(const cadre_layout *layout, int unit)
{
    const cadre_unit *u = &layout->units[unit];
    size_t count = 0;
    for (int i = u->first_segment; i < u->first_segment + u->n_segments; i++) {
        count += layout->segments[i].frozen ? 0 : layout->segments[i].count;
    }
    return count;
}

static limits limits_of(const cadre_layout *layout, size_t bucket_bytes)
{
    size_t total = 0;
    for (int u = 0; u < layout->n_units; u++) {
        total += unit_count(layout, u);
    }
    const size_t edge = EDGE_BYTES / sizeof(float);
    size_t share = total / LEAST_BUCKETS;
    size_t most = share > edge ? share : edge;
    size_t wanted = bucket_bytes / sizeof(float);
    most = most < wanted ? most : wanted;
    most = most < CADRE_QUANTUM ? CADRE_QUANTUM : most;
    return (limits){.edge = edge < most ? edge : most, .most = most};
}

// The unit whose gradients come last, or -1 if none has any.
static int last_in_time(const cadre_layout *layout)
{
    for (int u = 0; u < layout->n_units; u++) {
        if (unit_count(layout, u) > 0) {
            return u;
        }
    }
    return -1;
}

// The cut whose last unit is the one before `end`.  Units without gradients are
// passed over.
static cut cut_before(const cadre_layout *layout, int end, limits l)
{
    const int last = last_in_time(layout);
    cut c = {.first_unit = end, .n_chunks = 1};
    size_t most = end == layout->n_units ? l.edge : l.most;
    size_t count = 0;
    while (c.first_unit > 0) {
        int unit = c.first_unit - 1;
        size_t more = unit_count(layout, unit);
        if (count > 0 && more > 0 && (count + more > most || unit == last)) {
            break;
        }
        most = unit == last ? l.edge : most;
        count += more;
        c.first_unit--;
        c.n_units++;
    }
    if (count > most) {
        c.n_chunks = (int)((count - 1) / most + 1);
    }
    return c;
}

// Fills in one owner's part, or only counts its slices.
static int cut_part(const cadre_layout *layout, const cut *c, int owner,
    int n_owners, cadre_slice *slices)
{
    int n = 0;
    for (int u = c->first_unit; u < c->first_unit + c->n_units; u++) {
        cadre_shard shard = cadre_shard_of(&layout->units[u], owner, n_owners);
        cadre_shard chunk = cadre_shard_chunk(shard, c->chunk, c->n_chunks);
        n += cadre_layout_slices(
            layout, u, chunk, slices == NULL ? NULL : slices + n);
    }
    return n;
}

// Slices of all owners' parts.
static size_t count_slices(
    const cadre_layout *layout, const cut *c, int n_owners)
{
    size_t n = 0;
    for (int r = 0; r < n_owners; r++) {
        n += (size_t)cut_part(layout, c, r, n_owners, NULL);
    }
    return n;
}

// Fills in the parts of the next bucket.
static void fill_bucket(cadre_buckets *b, const cadre_layout *layout,
    const cut *c, size_t first_slice)
{
    cadre_bucket_part *parts =
        b->parts + (size_t)b->n_buckets * (size_t)b->n_owners;
    for (int r = 0; r < b->n_owners; r++) {
        cadre_slice *slices = b->slices + first_slice;
        int n = cut_part(layout, c, r, b->n_owners, slices);
        parts[r] = (cadre_bucket_part){
            .slices = slices, .n_slices = n, .runs = b->runs + first_slice};
        first_slice += (size_t)n;
    }
}

// Walks over all buckets: counts them and their slices, and fills them in if
// there is storage.  A chunk without elements is none, unless it is the only
// one.
static size_t walk(cadre_buckets *b, const cadre_layout *layout, limits l)
{
    size_t n_slices = 0;
    b->n_buckets = 0;
    for (int end = layout->n_units; end > 0;) {
        cut c = cut_before(layout, end, l);
        end = c.first_unit;
        for (c.chunk = c.n_chunks - 1; c.chunk >= 0; c.chunk--) {
            size_t n = count_slices(layout, &c, b->n_owners);
            bool only = end == 0 && c.chunk == 0 && b->n_buckets == 0;
            if (n == 0 && !only) {
                continue;
            }
            if (b->parts != NULL) {
                fill_bucket(b, layout, &c, n_slices);
            }
            b->n_buckets++;
            n_slices += n;
        }
    }
    return n_slices;
}

static void count_elements(cadre_buckets *b)
{
    for (int i = 0; i < b->n_buckets; i++) {
        cadre_bucket *bucket = &b->buckets[i];
        bucket->parts = b->parts + (size_t)i * (size_t)b->n_owners;
        for (int r = 0; r < b->n_owners; r++) {
            cadre_bucket_part *part = &bucket->parts[r];
            for (int s = 0; s < part->n_slices; s++) {
                part->count += part->slices[s].count;
            }
            bucket->count += part->count;
            bucket->most =
                part->count > bucket->most ? part->count : bucket->most;
        }
    }
}

// Counts, per segment, the buckets that it has elements in: seen has a word per
// segment, zero at first.
static void count_segments(cadre_buckets *b, int *seen)
{
    for (int k = 0; k < b->n_buckets; k++) {
        cadre_bucket *bucket = &b->buckets[k];
        for (int r = 0; r < b->n_owners; r++) {
            for (int s = 0; s < bucket->parts[r].n_slices; s++) {
                int segment = bucket->parts[r].slices[s].segment;
                if (seen[segment] != k + 1) {
                    seen[segment] = k + 1;
                    bucket->n_segments++;
                    b->first_of[segment + 1]++;
                }
            }
        }
    }
}

// Likewise; first_of holds where each segment's list begins and is moved on.
static void list_segments(cadre_buckets *b, int *seen)
{
    for (int k = 0; k < b->n_buckets; k++) {
        const cadre_bucket *bucket = &b->buckets[k];
        for (int r = 0; r < b->n_owners; r++) {
            for (int s = 0; s < bucket->parts[r].n_slices; s++) {
                int segment = bucket->parts[r].slices[s].segment;
                if (seen[segment] != -(k + 1)) {
                    seen[segment] = -(k + 1);
                    b->of[b->first_of[segment]++] = k;
                }
            }
        }
    }
}

// Which buckets have elements of which segment.
static cadre_status find_segments(cadre_buckets *b, const cadre_layout *layout)
{
    size_t n = (size_t)layout->n_segments;
    int *seen = cadre_alloc_array(n, sizeof(*seen));
    if (seen == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    count_segments(b, seen);
    for (size_t i = 0; i < n; i++) {
        b->first_of[i + 1] += b->first_of[i];
    }
    list_segments(b, seen);
    for (size_t i = n; i > 0; i--) {
        b->first_of[i] = b->first_of[i - 1];
    }
    b->first_of[0] = 0;
    cadre_free(seen);
    return CADRE_OK;
}

cadre_status cadre_buckets_init(cadre_buckets *buckets,
    const cadre_layout *layout, int n_owners, size_t bucket_bytes)
{
    const limits l = limits_of(layout, bucket_bytes);
    cadre_buckets b = {.n_owners = n_owners};
    size_t n_slices = walk(&b, layout, l);

    size_t n_parts = (size_t)b.n_buckets * (size_t)n_owners;
    size_t n_segments = (size_t)layout->n_segments;
    b.buckets = cadre_alloc_array((size_t)b.n_buckets, sizeof(*b.buckets));
    b.parts = cadre_alloc_array(n_parts, sizeof(*b.parts));
    b.slices = cadre_alloc_array(n_slices, sizeof(*b.slices));
    b.runs = cadre_alloc_array(n_slices, sizeof(*b.runs));
    b.first_of = cadre_alloc_array(n_segments + 1, sizeof(*b.first_of));
    b.of = cadre_alloc_array(n_slices, sizeof(*b.of));
    cadre_status status = CADRE_ERR_NO_MEMORY;
    if (b.buckets != NULL && b.parts != NULL && b.slices != NULL &&
        b.runs != NULL && b.first_of != NULL && b.of != NULL) {
        (void)walk(&b, layout, l);
        count_elements(&b);
        status = find_segments(&b, layout);
    }
    if (status != CADRE_OK) {
        cadre_buckets_fini(&b);
        return status;
    }
    *buckets = b;
    return CADRE_OK;
}

void cadre_buckets_fini(cadre_buckets *buckets)
{
    cadre_free(buckets->buckets);
    cadre_free(buckets->parts);
    cadre_free(buckets->first_of);
    cadre_free(buckets->of);
    cadre_free(buckets->slices);
    cadre_free(buckets->runs);
    *buckets = (cadre_buckets){0};
}

void cadre_bucket_point(const cadre_bucket_part *part, float *plane)
{
    for (int i = 0; i < part->n_slices; i++) {
        part->runs[i] = (cadre_run){
            .data = plane + part->slices[i].offset,
            .nbytes = part->slices[i].count * sizeof(float),
        };
    }
}

void cadre_bucket_point_apart(const cadre_bucket_part *part,
    const cadre_layout *layout, float *const *segments)
{
    for (int i = 0; i < part->n_slices; i++) {
        const cadre_slice *s = &part->slices[i];
        size_t within = s->offset - layout->segments[s->segment].offset;
        part->runs[i] = (cadre_run){
            .data = segments[s->segment] + within,
            .nbytes = s->count * sizeof(float),
        };
    }
}

void cadre_bucket_pack(
    const cadre_bucket_part *part, const float *plane, float *packed)
{
    for (int i = 0; i < part->n_slices; i++) {
        size_t count = part->slices[i].count;
        memcpy(packed, plane + part->slices[i].offset, count * sizeof(float));
        packed += count;
    }
}

void cadre_bucket_unpack(
    const cadre_bucket_part *part, const float *packed, float *plane)
{
    for (int i = 0; i < part->n_slices; i++) {
        size_t count = part->slices[i].count;
        memcpy(plane + part->slices[i].offset, packed, count * sizeof(float));
        packed += count;
    }
}
