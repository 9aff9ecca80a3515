// SPDX-License-Identifier: Apache-2.0
//
// The update of a step: of everything where the optimizer's state is replicated,
// of this rank's shards where it is sharded.  Elements do not know each other, so
// both make the same bits.

#include "optim/running.h"
#include "parallel/engine.h"

// Elements that are updated before peers get them: of so many, parameters,
// gradients and two slots are still in a near cache (docs/adr/0018).
enum { BLOCK = 8192 };

cadre_update cadre_engine_begin_update(
    cadre_engine *engine, cadre_factors factors, double lr)
{
    if (engine->optim == NULL) {
        return (cadre_update){.mean = factors.mean};
    }
    engine->powers.beta1 *= engine->hyper.beta1;
    engine->powers.beta2 *= engine->hyper.beta2;
    cadre_hyper no_decay = engine->hyper;
    no_decay.weight_decay = 0.0;
    return (cadre_update){
        .scalars =
            {
                engine->optim->scalars(&engine->hyper, lr, &engine->powers),
                engine->optim->scalars(&no_decay, lr, &engine->powers),
            },
        .scale = factors.scale,
        .mean = factors.mean,
    };
}

static float *values_of(const cadre_engine *e, const cadre_slice *run)
{
    size_t first = e->model->layout.segments[run->segment].offset;
    return cadre_model_values(e->model, run->segment) + (run->offset - first);
}

// Updates a run of one segment; grads are its own.
static void update_run(cadre_engine *e, const cadre_update *u,
    const cadre_slice *run, const float *grads)
{
    const cadre_segment *s = &e->model->layout.segments[run->segment];
    float *values = values_of(e, run);
    if (s->buffer) {
        cadre_running_update(u->mean, grads, values, run->count);
        return;
    }
    if (e->optim == NULL) {
        return;
    }
    float *slots[CADRE_MAX_SLOTS] = {NULL};
    for (int i = 0; i < e->n_slots; i++) {
        slots[i] = cadre_plane_at(&e->slots[i], s->unit, run->offset);
    }
    e->optim->update(
        &u->scalars[s->no_decay], u->scale, grads, slots, values, run->count);
}

// Updates a run block by block, here and at the peers.
static cadre_status update_everywhere(cadre_engine *e, const cadre_update *u,
    const cadre_slice *run, const float *grads)
{
    cadre_slice block = *run;
    for (size_t done = 0; done < run->count; done += block.count) {
        size_t left = run->count - done;
        block.offset = run->offset + done;
        block.count = left < BLOCK ? left : BLOCK;
        update_run(e, u, &block, grads + done);
        CADRE_TRY(cadre_reach_put(e->params_reach, values_of(e, &block),
            block.count * sizeof(float)));
    }
    return CADRE_OK;
}

static cadre_status update_owned(
    cadre_engine *e, const cadre_update *u, int bucket)
{
    const cadre_owned *own = cadre_fold_owned(e->fold, bucket);
    if (e->params_reach != NULL) {
        CADRE_TRY(cadre_reach_find(e->params_reach));
    }
    size_t packed = 0;
    for (int i = 0; i < own->part->n_slices; i++) {
        const cadre_slice *run = &own->part->slices[i];
        const float *grads = cadre_owned_slice(own, i, packed);
        if (e->params_reach != NULL) {
            CADRE_TRY(update_everywhere(e, u, run, grads));
        } else {
            update_run(e, u, run, grads);
        }
        packed += run->count;
    }
    return CADRE_OK;
}

static void update_all(cadre_engine *e, const cadre_update *u, int bucket)
{
    const float *sums = cadre_fold_result(e->fold);
    for (int r = 0; r < e->buckets.n_owners; r++) {
        const cadre_bucket_part *part = &e->buckets.buckets[bucket].parts[r];
        for (int i = 0; i < part->n_slices; i++) {
            const cadre_slice *run = &part->slices[i];
            update_run(e, u, run, sums + run->offset);
        }
    }
}

cadre_status cadre_engine_update_bucket(
    cadre_engine *engine, const cadre_update *update, int bucket)
{
    if (engine->placement->optimizer == CADRE_SHARDED) {
        return update_owned(engine, update, bucket);
    }
    update_all(engine, update, bucket);
    return CADRE_OK;
}
