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

#endif // CADRE_GROUP_WATCH_IMPL_H
