// SPDX-License-Identifier: Apache-2.0

#include "train/summary.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "cadre/cadre.h"
#include "parallel/model.h"
#include "state/leaf.h"
#include "state/placement.h"
#include "train/identity.h"
#include "train/values.h"
#include "train/watch.h"
#include <signal.h>
#include <string.h>

enum { MAX_PLANES = 16 };

// What every rank tells about itself, in whole numbers.
enum {
    BYTES_SENT, // per step
    OVERHEAD_BYTES,
    FORMULA_BYTES,
    PEAK_RSS_BYTES,
    ACTIVATION_BYTES,
    DATA_NS, // per step, as the next four
    FORWARD_NS,
    BACKWARD_NS,
    EXPOSED_NS,
    UPDATE_NS,
    EXPOSED_PPB, // billionths of the step time
    FIRST_PLANE,
    N_WORDS = FIRST_PLANE + MAX_PLANES,
};

static cadre_dealing dealing_of(const cadre_outcome *o)
{
    return (cadre_dealing){
        .n_leaves = cadre_leaf_count(o->engine),
        .block = cadre_engine_fold(o->engine),
        .world_size = cadre_world_size(o->world),
    };
}

// What docs/cli.md promises for bytes_sent_per_step, of this rank.
static int64_t formula_bytes(const cadre_outcome *o)
{
    int n = cadre_world_size(o->world);
    int rank = cadre_rank(o->world);
    const cadre_layout *layout = &o->task->model->layout;
    const cadre_dealing dealing = dealing_of(o);
    int64_t all = 0;
    int64_t own = 0;
    for (int u = 0; u < layout->n_units; u++) {
        const cadre_unit *unit = &layout->units[u];
        cadre_shard shard = cadre_shard_of(unit, rank, n);
        for (int i = 0; i < unit->n_segments; i++) {
            const cadre_segment *s = &layout->segments[unit->first_segment + i];
            size_t lo = s->offset > shard.lo ? s->offset : shard.lo;
            size_t hi = s->offset + s->count;
            hi = hi < shard.hi ? hi : shard.hi;
            all += s->frozen ? 0 : (int64_t)s->count;
            own += s->frozen || hi <= lo ? 0 : (int64_t)(hi - lo);
        }
    }
    int64_t n_blocks = 0; // of this rank
    for (int t = 0; t < cadre_dealing_rounds(&dealing); t++) {
        n_blocks += cadre_dealing_has_block(&dealing, rank, t);
    }
    return 4 * (n_blocks * (all - own) + (n - 1) * own);
}

static void measure(const cadre_outcome *o, int64_t words[N_WORDS])
{
    const cadre_tally *t = o->tally;
    int64_t n_made = t->n_steps - t->n_before;
    int64_t n_steps = n_made > 0 ? n_made : 1;
    words[BYTES_SENT] = (int64_t)t->bytes_sent / n_steps;
    words[OVERHEAD_BYTES] = (int64_t)t->overhead_bytes / n_steps;
    words[FORMULA_BYTES] = formula_bytes(o);
    words[PEAK_RSS_BYTES] = cadre_peak_rss_bytes();
    words[ACTIVATION_BYTES] = (int64_t)o->activation_bytes;
    if (t->n_measured > 0) {
        words[EXPOSED_PPB] =
            (int64_t)((double)t->exposed_ns * 1e9 / (double)t->times.ns);
        words[DATA_NS] = t->times.data_ns / t->n_measured;
        words[FORWARD_NS] = t->times.forward_ns / t->n_measured;
        words[BACKWARD_NS] = t->times.backward_ns / t->n_measured;
        words[EXPOSED_NS] = t->exposed_ns / t->n_measured;
        words[UPDATE_NS] = t->update_ns / t->n_measured;
    }
    cadre_plane_bytes planes[MAX_PLANES];
    int n_planes = cadre_engine_state_bytes(o->engine, planes, MAX_PLANES);
    for (int i = 0; i < n_planes && i < MAX_PLANES; i++) {
        words[FIRST_PLANE + i] = (int64_t)planes[i].nbytes;
    }
}

// Gathers all ranks' words and keeps the largest of each.
static cadre_status gather_largest(
    const cadre_outcome *o, int64_t words[N_WORDS])
{
    size_t world_size = (size_t)cadre_world_size(o->world);
    int64_t *all = cadre_alloc_array(world_size, N_WORDS * sizeof(all[0]));
    size_t *counts = cadre_alloc_array(world_size, sizeof(counts[0]));
    cadre_status status = CADRE_ERR_NO_MEMORY;
    if (all != NULL && counts != NULL) {
        for (size_t i = 0; i < world_size; i++) {
            counts[i] = N_WORDS;
        }
        status = cadre_allgather(o->world, words, all, counts, CADRE_I64, NULL);
    }
    for (size_t i = 0; status == CADRE_OK && i < world_size * N_WORDS; i++) {
        int64_t *largest = &words[i % N_WORDS];
        *largest = all[i] > *largest ? all[i] : *largest;
    }
    cadre_free(all);
    cadre_free(counts);
    return status;
}

static json_t *make_state_bytes(
    const cadre_engine *engine, const int64_t words[N_WORDS])
{
    json_t *object = json_object();
    cadre_plane_bytes planes[MAX_PLANES];
    int n_planes = cadre_engine_state_bytes(engine, planes, MAX_PLANES);
    for (int i = 0; i < n_planes && i < MAX_PLANES; i++) {
        if (json_object_set_new(object, planes[i].name,
                json_integer(words[FIRST_PLANE + i])) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static json_t *make_step_parts(const int64_t words[N_WORDS])
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "data",
        (double)words[DATA_NS] * 1e-6, "forward",
        (double)words[FORWARD_NS] * 1e-6, "backward",
        (double)words[BACKWARD_NS] * 1e-6, "exposed",
        (double)words[EXPOSED_NS] * 1e-6, "optimizer",
        (double)words[UPDATE_NS] * 1e-6);
}

static json_t *make_eval(const cadre_eval_result *eval, bool is_text)
{
    if (eval == NULL) {
        return json_null();
    }
    return json_pack("{s:o, s:o, s:I}", "loss", cadre_json_real(eval->loss),
        is_text ? "bits_per_byte" : "accuracy",
        cadre_json_real(is_text ? eval->bits_per_byte : eval->accuracy),
        "samples", (json_int_t)eval->n_samples);
}

static json_t *make_versions(void)
{
    char version[32];
    snprintf(version, sizeof(version), "%d.%d.%d", CADRE_VERSION_MAJOR,
        CADRE_VERSION_MINOR, CADRE_VERSION_PATCH);
    return json_pack("{s:s, s:s, s:s}", "cadre", version, "compute",
        cadre_compute_version(), "jansson", jansson_version_str());
}

static json_t *make_stopped_by(int signal_number)
{
    return signal_number == 0
               ? json_null()
               : json_string(signal_number == SIGINT ? "SIGINT" : "SIGTERM");
}

// What the run was.
static json_t *make_setting(const cadre_outcome *o)
{
    const cadre_train_config *c = o->config;
    const cadre_dealing d = dealing_of(o);
    return json_pack(
        "{s:s, s:i, s:i, s:s, s:i, s:i, s:s, s:s, s:s, s:s, s:o, s:o}",
        "recipe", c->recipe, "world_size", d.world_size, "threads", c->threads,
        "mode", cadre_placement_of((int)c->mode)->mode, "leaves", d.n_leaves,
        "fold", d.block, "precision", cadre_train_precision(c), "order",
        cadre_order_name(o->world), "transport", cadre_transport_name(o->world),
        "isa", cadre_compute_isa(), "library_versions", make_versions(),
        "identity", cadre_json_hash(cadre_identity_hash(c, o->task, &d)));
}

// Null where there are none.
static json_t *make_buffers_hash(const cadre_model *model)
{
    for (int i = 0; i < model->layout.n_segments; i++) {
        if (model->layout.segments[i].buffer) {
            return cadre_json_hash(cadre_model_buffers_hash(model));
        }
    }
    return json_null();
}

// What came of it.
static json_t *make_result(const cadre_outcome *o, const int64_t words[N_WORDS])
{
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b}",
        "steps", (json_int_t)o->tally->n_steps, "skipped_steps",
        (json_int_t)o->tally->n_skipped, "stopped_by",
        make_stopped_by(o->stopped_by), "wall_seconds",
        cadre_json_real((double)o->wall_ns * 1e-9), "loss",
        cadre_json_real(cadre_tally_loss(o->tally)), "eval",
        make_eval(o->eval, o->config->model_context > 0), "state_bytes",
        make_state_bytes(o->engine, words), "params_hash",
        cadre_json_hash(cadre_model_hash(o->task->model)), "buffers_hash",
        make_buffers_hash(o->task->model), "replicas_equal",
        (int)o->replicas_equal);
}

// How fast it was.
static json_t *make_speed(const cadre_outcome *o, const int64_t words[N_WORDS])
{
    bool measured = o->tally->n_measured > 0;
    bool is_ring = strcmp(cadre_order_name(o->world), "ring") == 0;
    double samples = cadre_tally_samples_per_second(o->tally);
    int tokens = o->config->model_context;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:I, s:I, s:I, s:n}",
        "samples_per_second", cadre_json_real(samples), "tokens_per_second",
        tokens > 0 ? cadre_json_real(samples * tokens) : json_null(),
        "step_ms_median", cadre_json_real(cadre_tally_median_ms(o->tally)),
        "step_parts_ms", measured ? make_step_parts(words) : json_null(),
        "exposed_fraction",
        measured ? cadre_json_real((double)words[EXPOSED_PPB] * 1e-9)
                 : json_null(),
        "bytes_sent_per_step", (json_int_t)words[BYTES_SENT],
        "formula_bytes_per_step",
        is_ring ? json_null() : json_integer((json_int_t)words[FORMULA_BYTES]),
        "overhead_bytes_per_step", (json_int_t)words[OVERHEAD_BYTES],
        "activation_bytes", (json_int_t)words[ACTIVATION_BYTES],
        "peak_rss_bytes", (json_int_t)words[PEAK_RSS_BYTES], "job_peak_bytes");
}

static json_t *make_object(const cadre_outcome *o, const int64_t words[N_WORDS])
{
    json_t *object = make_setting(o);
    json_t *result = make_result(o, words);
    json_t *speed = make_speed(o, words);
    const cadre_dealing dealing = dealing_of(o);
    // No one command makes the steps of two identities.
    char *command = o->identity_since > 0 ? NULL
                                          : cadre_identity_command(o->config,
                                                &dealing, o->tally->n_steps);
    // A path that is no UTF-8 cannot stand in a JSON file.
    json_t *reproduce = command == NULL ? NULL : json_string(command);
    int failed = json_object_update(object, result);
    failed |= json_object_update(object, speed);
    failed |= json_object_set_new(
        object, "reproduce", reproduce == NULL ? json_null() : reproduce);
    cadre_free(command);
    json_decref(result);
    json_decref(speed);
    if (failed != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

// jansson's own memory is not ours to hand out, so the text goes into ours.
static char *make_text(const json_t *object)
{
    const size_t flags = JSON_INDENT(2);
    size_t nbytes = json_dumpb(object, NULL, 0, flags);
    char *text = nbytes == 0 ? NULL : cadre_alloc(nbytes + 1);
    if (text != NULL && json_dumpb(object, text, nbytes, flags) != nbytes) {
        cadre_free(text);
        return NULL;
    }
    return text;
}

cadre_status cadre_summary_make(const cadre_outcome *outcome, char **json)
{
    int64_t words[N_WORDS] = {0};
    measure(outcome, words);
    CADRE_TRY(gather_largest(outcome, words));
    *json = NULL;
    if (cadre_rank(outcome->world) != 0) {
        return CADRE_OK;
    }
    json_t *object = make_object(outcome, words);
    char *text = object == NULL ? NULL : make_text(object);
    json_decref(object);
    if (text == NULL) {
        return cadre_fail(CADRE_ERR_NO_MEMORY, "out of memory for the summary");
    }
    *json = text;
    return CADRE_OK;
}
