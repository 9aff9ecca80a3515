// SPDX-License-Identifier: Apache-2.0

#include "parallel/bucket.h"

#include "base/alloc.h"
#include "kernel/squares.h"
#include <string.h>

// A bucket in the making: the units it merges, or a chunk of one.
typedef struct cut {
    int first_unit;
    int n_units;
    int chunk; // of n_chunks, for every owner's shard alike
    int n_chunks;
} cut;

// Trainable elements of a unit.
static size_t unit_count(const cadre_layout *layout, int unit)
{
    const cadre_unit *u = &layout->units[unit];
    size_t count = 0;
    for (int i = u->first_segment; i < u->first_segment + u->n_segments; i++) {
        count += layout->segments[i].frozen ? 0 : layout->segments[i].count;
    }
    return count;
}

// The next cut at or after unit.  Units without gradients are passed over.
static cut next_cut(const cadre_layout *layout, int unit, size_t most)
{
    cut c = {.first_unit = unit, .n_chunks = 1};
    size_t count = 0;
    while (unit + c.n_units < layout->n_units) {
        size_t more = unit_count(layout, unit + c.n_units);
        if (count > 0 && more > 0 && count + more > most) {
            break;
        }
        count += more;
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

// Walks over all buckets: counts them and their slices, and fills in what
// storage there is.
static void walk(
    cadre_buckets *b, const cadre_layout *layout, size_t most, size_t *n_slices)
{
    int n_buckets = 0;
    *n_slices = 0;
    for (int unit = 0; unit < layout->n_units;) {
        cut c = next_cut(layout, unit, most);
        for (c.chunk = 0; c.chunk < c.n_chunks; c.chunk++) {
            for (int r = 0; r < b->n_owners; r++) {
                cadre_slice *slices =
                    b->slices == NULL ? NULL : b->slices + *n_slices;
                int n = cut_part(layout, &c, r, b->n_owners, slices);
                if (slices != NULL) {
                    b->parts[n_buckets * b->n_owners + r] =
                        (cadre_bucket_part){.slices = slices,
                            .n_slices = n,
                            .runs = b->runs + *n_slices};
                }
                *n_slices += (size_t)n;
            }
            n_buckets++;
        }
        unit += c.n_units;
    }
    b->n_buckets = n_buckets;
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
        }
    }
}

cadre_status cadre_buckets_init(cadre_buckets *buckets,
    const cadre_layout *layout, int n_owners, size_t bucket_bytes)
{
    size_t most = bucket_bytes / sizeof(float);
    most = most < CADRE_QUANTUM ? CADRE_QUANTUM : most;
    cadre_buckets b = {.n_owners = n_owners};
    size_t n_slices;
    walk(&b, layout, most, &n_slices);

    size_t n_parts = (size_t)b.n_buckets * (size_t)n_owners;
    b.buckets = cadre_alloc_array((size_t)b.n_buckets, sizeof(*b.buckets));
    b.parts = cadre_alloc_array(n_parts, sizeof(*b.parts));
    b.slices = cadre_alloc_array(n_slices, sizeof(*b.slices));
    b.runs = cadre_alloc_array(n_slices, sizeof(*b.runs));
    if (b.buckets == NULL || b.parts == NULL || b.slices == NULL ||
        b.runs == NULL) {
        cadre_buckets_fini(&b);
        return CADRE_ERR_NO_MEMORY;
    }
    walk(&b, layout, most, &n_slices);
    count_elements(&b);
    *buckets = b;
    return CADRE_OK;
}

void cadre_buckets_fini(cadre_buckets *buckets)
{
    cadre_free(buckets->buckets);
    cadre_free(buckets->parts);
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
