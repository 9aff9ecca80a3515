// SPDX-License-Identifier: Apache-2.0

#include "parallel/model.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "parallel/compare.h"
#include "state/safetensors.h"
#include <string.h>

cadre_status cadre_model_create(cadre_group *group, cadre_model **out)
{
    if (group == NULL || out == NULL) {
        return cadre_fail(
            CADRE_ERR_INVALID_ARG, "cadre_model_create needs a group and out");
    }
    cadre_model *m = cadre_alloc(sizeof(*m));
    if (m == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    m->group = group;
    *out = m;
    return CADRE_OK;
}

void cadre_model_destroy(cadre_model *model)
{
    if (model == NULL) {
        return;
    }
    cadre_arena_free(model->group, model->params.data);
    cadre_free(model->own_values);
    cadre_layout_fini(&model->layout);
    cadre_free(model);
}

// Room for one more entry of own_values, which grows beside the segments.
static cadre_status reserve(cadre_model *m)
{
    if (m->layout.n_segments < m->own_capacity) {
        return CADRE_OK;
    }
    int capacity = m->own_capacity == 0 ? 16 : m->own_capacity * 2;
    float **grown = cadre_alloc_array((size_t)capacity, sizeof(*grown));
    if (grown == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    if (m->own_capacity > 0) {
        memcpy(grown, m->own_values, (size_t)m->own_capacity * sizeof(*grown));
    }
    cadre_free(m->own_values);
    m->own_values = grown;
    m->own_capacity = capacity;
    return CADRE_OK;
}

// The unit that a name asks for: all of it up to its last dot.
static char *unit_of(const char *name)
{
    char *unit = cadre_alloc_string(name);
    char *dot = unit == NULL ? NULL : strrchr(unit, '.');
    if (dot != NULL && dot != unit) {
        *dot = '\0';
    }
    return unit;
}

cadre_status cadre_model_add(cadre_model *model, const char *name,
    const int64_t *shape, int n_dims, const cadre_param_options *options,
    int *index)
{
    if (model == NULL || name == NULL || shape == NULL) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "cadre_model_add needs a model, a name and a shape");
    }
    if (model->sealed) {
        return cadre_fail(CADRE_ERR_STATE,
            "parameter '%s' comes too late: the model is sealed", name);
    }
    const cadre_param_options none = {0};
    const cadre_param_options *o = options == NULL ? &none : options;
    if (o->frozen && o->buffer) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "'%s' is to be frozen and a buffer, which changes every step",
            name);
    }
    CADRE_TRY(reserve(model));
    char *unit = o->unit == NULL ? unit_of(name) : cadre_alloc_string(o->unit);
    if (unit == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status =
        cadre_layout_add(&model->layout, name, unit, shape, n_dims, o->frozen);
    cadre_free(unit);
    CADRE_TRY(status);

    if (o->no_decay) {
        cadre_layout_no_decay(&model->layout);
    }
    if (o->buffer) {
        cadre_layout_buffer(&model->layout);
    }
    int added = model->layout.n_segments - 1;
    model->own_values[added] = o->values;
    if (index != NULL) {
        *index = added;
    }
    return CADRE_OK;
}

static cadre_status no_model(void)
{
    return cadre_fail(CADRE_ERR_INVALID_ARG, "the model is NULL");
}

cadre_status cadre_model_seal(cadre_model *model)
{
    if (model == NULL) {
        return no_model();
    }
    if (model->sealed) {
        return cadre_fail(CADRE_ERR_STATE, "the model is sealed already");
    }
    // Compared even if empty: another rank may have parameters.
    CADRE_TRY(cadre_compare_layouts(model->group, &model->layout));
    if (model->layout.n_segments == 0) {
        return cadre_fail(CADRE_ERR_STATE, "the model has no parameters");
    }

    size_t nbytes = model->layout.n_elements * sizeof(float);
    void *data;
    CADRE_TRY(cadre_arena_alloc(model->group, nbytes, &data));
    model->params =
        (cadre_plane){.name = "params", .data = data, .nbytes = nbytes};
    model->sealed = true;
    return CADRE_OK;
}

int cadre_model_param_count(const cadre_model *model)
{
    return model->layout.n_segments;
}

static const cadre_segment *segment_at(const cadre_model *model, int index)
{
    CADRE_ASSERT(index >= 0 && index < model->layout.n_segments);
    return &model->layout.segments[index];
}

static bool has_param(const cadre_model *model, int index)
{
    return index >= 0 && index < model->layout.n_segments;
}

const char *cadre_model_param_name(const cadre_model *model, int index)
{
    return has_param(model, index) ? segment_at(model, index)->name : NULL;
}

size_t cadre_model_param_elements(const cadre_model *model, int index)
{
    return has_param(model, index) ? segment_at(model, index)->count : 0;
}

float *cadre_model_values(const cadre_model *model, int segment)
{
    float *own = model->own_values[segment];
    return own != NULL
               ? own
               : model->params.data + segment_at(model, segment)->offset;
}

float *cadre_model_param(cadre_model *model, int index)
{
    return model->sealed && has_param(model, index)
               ? cadre_model_values(model, index)
               : NULL;
}

const float *cadre_model_grad(const cadre_model *model, int index)
{
    if (model->grads == NULL || !has_param(model, index) ||
        segment_at(model, index)->frozen || segment_at(model, index)->buffer) {
        return NULL;
    }
    return model->grads + segment_at(model, index)->offset;
}

uint64_t cadre_model_segment_hash(const cadre_model *model, int segment)
{
    const cadre_segment *s = segment_at(model, segment);
    return cadre_piece_hash(
        cadre_model_values(model, segment), s->offset, s->count);
}

static uint64_t hash_of(const cadre_model *model, bool buffers)
{
    uint64_t sum = 0;
    for (int i = 0; model->sealed && i < model->layout.n_segments; i++) {
        if (segment_at(model, i)->buffer == buffers) {
            sum += cadre_model_segment_hash(model, i);
        }
    }
    return sum;
}

uint64_t cadre_model_hash(const cadre_model *model)
{
    return hash_of(model, false);
}

uint64_t cadre_model_buffers_hash(const cadre_model *model)
{
    return hash_of(model, true);
}

// A plane's segments as tensors of a file, for cadre_free(); NULL without memory.
static cadre_tensor *tensors_of(const cadre_model *model, float *plane, int *n)
{
    int most = model->layout.n_segments;
    cadre_tensor *tensors = cadre_alloc_array((size_t)most, sizeof(*tensors));
    *n = 0;
    for (int i = 0; tensors != NULL && i < most; i++) {
        const cadre_segment *s = segment_at(model, i);
        if (plane != NULL && (s->frozen || s->buffer)) {
            continue;
        }
        tensors[(*n)++] = (cadre_tensor){
            .name = s->name,
            .shape = s->shape,
            .n_dims = s->n_dims,
            .count = s->count,
            .values = plane == NULL ? cadre_model_values(model, i)
                                    : plane + s->offset,
        };
    }
    return tensors;
}

// What saving and loading want.
static cadre_status check_file_call(const cadre_model *model, const char *path)
{
    if (model == NULL || path == NULL) {
        return cadre_fail(
            CADRE_ERR_INVALID_ARG, "a model file needs a model and a path");
    }
    if (!model->sealed) {
        return cadre_fail(CADRE_ERR_STATE, "the model is not sealed yet");
    }
    return CADRE_OK;
}

cadre_status cadre_model_write_plane(
    const cadre_model *model, float *plane, const char *path)
{
    int n;
    cadre_tensor *tensors = tensors_of(model, plane, &n);
    char *layout = cadre_layout_json(&model->layout);
    cadre_status status = CADRE_ERR_NO_MEMORY;
    if (tensors != NULL && layout != NULL) {
        status =
            cadre_safetensors_write(path, tensors, n, "cadre.layout", layout);
    }
    cadre_free(layout);
    cadre_free(tensors);
    return status;
}

cadre_status cadre_model_read_plane(
    const cadre_model *model, float *plane, const char *path)
{
    int n;
    cadre_tensor *tensors = tensors_of(model, plane, &n);
    if (tensors == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = cadre_safetensors_read(path, tensors, n);
    cadre_free(tensors);
    return status;
}

cadre_status cadre_model_save(const cadre_model *model, const char *path)
{
    CADRE_TRY(check_file_call(model, path));
    return cadre_model_write_plane(model, NULL, path);
}

cadre_status cadre_model_load(cadre_model *model, const char *path)
{
    CADRE_TRY(check_file_call(model, path));
    return cadre_model_read_plane(model, NULL, path);
}
