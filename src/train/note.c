// SPDX-License-Identifier: Apache-2.0

#include "train/note.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/number.h"
#include "train/values.h"
#include <string.h>

static json_t *losses_json(const cadre_note *note)
{
    json_t *array = json_array();
    for (int i = 0; i < note->n_losses; i++) {
        json_array_append_new(array, cadre_json_real(note->losses[i]));
    }
    return array;
}

char *cadre_note_write(const cadre_note *note)
{
    json_t *root = json_pack("{s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:o}",
        "identity", cadre_json_hash(note->identity), "settings",
        note->identity_text, "identity_since", (json_int_t)note->identity_since,
        "total_steps", (json_int_t)note->total_steps, "epoch",
        (json_int_t)note->next.epoch, "sample", (json_int_t)note->next.first,
        "skipped_steps", (json_int_t)note->n_skipped, "losses",
        losses_json(note));
    size_t nbytes = root == NULL ? 0 : json_dumpb(root, NULL, 0, JSON_COMPACT);
    char *text = nbytes == 0 ? NULL : cadre_alloc(nbytes + 1);
    if (text != NULL) {
        json_dumpb(root, text, nbytes, JSON_COMPACT);
    } else {
        (void)cadre_fail(CADRE_ERR_NO_MEMORY, "out of memory for a checkpoint");
    }
    json_decref(root);
    return text;
}

static bool read_losses(const json_t *array, cadre_note *note)
{
    size_t n = json_array_size(array);
    if (!json_is_array(array) || n > CADRE_TALLY_LOSSES) {
        return false;
    }
    note->n_losses = (int)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *loss = json_array_get(array, i);
        note->losses[i] =
            json_is_real(loss) ? json_real_value(loss) : (double)NAN;
    }
    return true;
}

static bool read_fields(json_t *root, cadre_note *note, const char **settings)
{
    const char *identity;
    json_int_t since;
    json_int_t total;
    json_int_t epoch;
    json_int_t sample;
    json_int_t skipped;
    json_t *losses;
    if (json_unpack(root, "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:o}",
            "identity", &identity, "settings", settings, "identity_since",
            &since, "total_steps", &total, "epoch", &epoch, "sample", &sample,
            "skipped_steps", &skipped, "losses", &losses) != 0 ||
        since < 0 || total < 0 || epoch < 0 || sample < 0 || skipped < 0) {
        return false;
    }
    note->identity_since = since;
    note->total_steps = total;
    note->next.epoch = epoch;
    note->next.first = sample;
    note->n_skipped = skipped;
    return cadre_parse_hash(identity, &note->identity) &&
           read_losses(losses, note);
}

cadre_status cadre_note_read(const char *text, cadre_note *out)
{
    json_t *root = text == NULL ? NULL : json_loads(text, 0, NULL);
    cadre_note note = {0};
    const char *settings;
    cadre_status status = CADRE_OK;
    if (!read_fields(root, &note, &settings)) {
        status = cadre_fail(CADRE_ERR_CORRUPT,
            "the checkpoint is none of `cadre train`: its note is another's");
    } else {
        note.identity_text = cadre_alloc_string(settings);
        status = note.identity_text == NULL ? CADRE_ERR_NO_MEMORY : CADRE_OK;
    }
    json_decref(root);
    if (status == CADRE_OK) {
        *out = note;
    }
    return status;
}
