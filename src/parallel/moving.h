// SPDX-License-Identifier: Apache-2.0
//
// Who moves the exchanges of a step (docs/overlap.md): the threads that compute,
// in turn, whenever one of them has something to move; or a thread of the
// engine's own, which sleeps until there is.  At the end of a step the thread
// that ends it claims them for itself.
//
// Threads: as each function says.

#ifndef CADRE_PARALLEL_MOVING_H
#define CADRE_PARALLEL_MOVING_H

#include "parallel/engine.h"

/** Starts the engine's own thread, if it is wanted. */
cadre_status cadre_moving_start(cadre_engine *e);

/** Ends that thread, wherever it is; it may not have been started. */
void cadre_moving_stop(cadre_engine *e);

/**
 * Moves exchanges on, unless another thread does so or is there for it.  news: a
 * chunk was completed, of which that one is told.  With wait, may sleep until
 * something moves.  From any hook.
 */
void cadre_moving_offer(cadre_engine *e, bool wait, bool news);

/** Keeps all others from moving, from now on; waits for the one who does. */
void cadre_moving_claim(cadre_engine *e);
void cadre_moving_release(cadre_engine *e);

/** Moves exchanges on; the caller has claimed them. */
void cadre_moving_go_on(cadre_engine *e, bool wait);

/**
 * Keeps the step's first failure, of this thread.  Other ranks would wait for
 * this one, so the group ends with it.
 */
void cadre_moving_fail(cadre_engine *e, cadre_status status);
bool cadre_moving_has_failed(cadre_engine *e);

#endif // CADRE_PARALLEL_MOVING_H
