// SPDX-License-Identifier: Apache-2.0

#include "train/save.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "parallel/verdict.h"
#include "train/identity.h"
#include "train/note.h"
#include "train/resume.h"

// What a run that goes on from here must know, beside the engine's state.
static cadre_status set_note(const cadre_save *s)
{
    const cadre_train_config *c = s->config;
    cadre_note note = {
        .identity = s->identity,
        .identity_text =
            cadre_identity_text(c, s->task, cadre_leaf_count(s->engine)),
        .identity_since = s->identity_since,
        .total_steps = c->total_steps,
        .next = cadre_deal_batch(s->task->train->n_samples, c->global_batch,
            c->data_drop_last, s->tally->n_steps),
        .n_skipped = s->tally->n_skipped,
    };
    note.n_losses = cadre_tally_losses(s->tally, note.losses);
    char *text = note.identity_text == NULL ? NULL : cadre_note_write(&note);
    cadre_free(note.identity_text);
    cadre_status status = text == NULL ? CADRE_ERR_NO_MEMORY
                                       : cadre_engine_set_note(s->engine, text);
    cadre_free(text);
    return status;
}

cadre_status cadre_save_checkpoint(const cadre_save *save)
{
    const char *folder = save->config->out;
    int64_t step = save->tally->n_steps;
    char *path = cadre_resume_path(folder, step);
    cadre_status status = path == NULL ? CADRE_ERR_NO_MEMORY : set_note(save);
    status = cadre_share_verdict(save->world, status);
    if (status == CADRE_OK) {
        status = cadre_checkpoint_save(save->engine, path);
    }
    cadre_free(path);
    if (status == CADRE_OK && cadre_rank(save->world) == 0) {
        cadre_resume_prune(folder, step, save->config->checkpoint_keep);
    }
    return status;
}
