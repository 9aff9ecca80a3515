// SPDX-License-Identifier: Apache-2.0
//
// What a kind of watch implements; group/watch.h says what the calls promise.

#ifndef CADRE_GROUP_WATCH_IMPL_H
#define CADRE_GROUP_WATCH_IMPL_H

#include "group/watch.h"

typedef struct cadre_watch_ops {
    /** Any thread; called before and while every wait, so it must be cheap. */
    cadre_status (*check)(cadre_watch *watch);

    /** Any thread; waits for the first cause for half a second at most. */
    cadre_status (*fail)(
        cadre_watch *watch, cadre_status status, int suspect, const char *text);

    /** Says goodbye and releases; a second at most. */
    void (*stop)(cadre_watch *watch);
} cadre_watch_ops;

/** Every implementation starts with this struct, as its member `base`. */
struct cadre_watch {
    const cadre_watch_ops *ops;
};

/**
 * The status of a verdict: any but -40 and below would say that the group is
 * whole (docs/errors.md).
 */
static inline cadre_status cadre_watch_status(cadre_status status)
{
    return status <= CADRE_ERR_TIMEOUT ? status : CADRE_ERR_ABORTED;
}

#endif // CADRE_GROUP_WATCH_IMPL_H
