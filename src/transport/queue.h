// SPDX-License-Identifier: Apache-2.0
//
// Transfers in the order they were posted, linked through their own `next`.

#ifndef CADRE_TRANSPORT_QUEUE_H
#define CADRE_TRANSPORT_QUEUE_H

#include "transport/transport.h"

/** {0} is an empty queue; transfers are borrowed while they are in it. */
typedef struct cadre_transfer_queue {
    cadre_transfer *head;
    cadre_transfer *tail;
} cadre_transfer_queue;

static inline void cadre_queue_push(
    cadre_transfer_queue *queue, cadre_transfer *x)
{
    x->next = NULL;
    if (queue->head == NULL) {
        queue->head = x;
    } else {
        queue->tail->next = x;
    }
    queue->tail = x;
}

/** The queue must not be empty. */
static inline cadre_transfer *cadre_queue_pop(cadre_transfer_queue *queue)
{
    cadre_transfer *x = queue->head;
    queue->head = x->next;
    return x;
}

#endif // CADRE_TRANSPORT_QUEUE_H
