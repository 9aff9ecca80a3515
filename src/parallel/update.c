// SPDX-License-Identifier: Apache-2.0
//
// The update of a step: of everything where the optimizer's state is replicated,
// of this rank's shards where it is sharded.  Elements do not know each other, so
// both make the same bits.

#include "parallel/engine.h"

cadre_update cadre_engine_begin_update(
    cadre_engine *engine, float scale, double lr)
{
    engine->powers.beta1 *= engine->hyper.beta1;
    engine->powers.beta2 *= engine->hyper.beta2;
    return (cadre_update){
        .scalars = engine->optim->scalars(&engine->hyper, lr, &engine->powers),
        .scale = scale,
    };
}

// Updates a run of one segment; grads are its own.
static void update_run(cadre_engine *e, const cadre_update *u,
    const cadre_slice *run, const float *grads)
{
    const cadre_segment *s = &e->model->layout.segments[run->segment];
    float *slots[CADRE_MAX_SLOTS] = {NULL};
    for (int i = 0; i < e->n_slots; i++) {
        slots[i] = cadre_plane_at(&e->slots[i], s->unit, run->offset);
    }
    float *values = cadre_model_values(e->model, run->segment);
    e->optim->update(&u->scalars, u->scale, grads, slots,
        values + (run->offset - s->offset), run->count);
}

void cadre_engine_update(
    cadre_engine *engine, const cadre_update *update, const float *grads)
{
    const cadre_layout *layout = &engine->model->layout;
    for (int i = 0; i < layout->n_segments; i++) {
        const cadre_segment *s = &layout->segments[i];
        if (!s->frozen) {
            const cadre_slice all = {
                .segment = i, .offset = s->offset, .count = s->count};
            update_run(engine, update, &all, grads + s->offset);
        }
    }
}

void cadre_engine_update_bucket(
    cadre_engine *engine, const cadre_update *update, int bucket)
{
    const cadre_owned *own = cadre_fold_owned(engine->fold, bucket);
    size_t packed = 0;
    for (int i = 0; i < own->part->n_slices; i++) {
        const cadre_slice *run = &own->part->slices[i];
        update_run(engine, update, run, cadre_owned_slice(own, i, packed));
        packed += run->count;
    }
}
