// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/mailbox.h"

#include "base/check.h"
#include "base/socket.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

void cadre_mailbox_open(
    cadre_mailbox *box, int socket, uint8_t *in, size_t in_capacity)
{
    *box = (cadre_mailbox){
        .socket = socket, .in = in, .in_capacity = in_capacity, .passed = -1};
}

void cadre_mailbox_close(cadre_mailbox *box)
{
    if (box->socket >= 0) {
        close(box->socket);
        box->socket = -1;
    }
    if (box->passed >= 0) {
        close(box->passed);
        box->passed = -1;
    }
}

// Hands out the message at the front of the buffer, if it is complete.
static cadre_mail next_message(cadre_mailbox *box, cadre_message *out)
{
    size_t nbytes;
    if (!cadre_message_peek(box->in, box->in_used, out, &nbytes) ||
        nbytes > box->in_capacity) {
        return CADRE_MAIL_GARBAGE;
    }
    if (nbytes == 0 || nbytes > box->in_used) {
        return CADRE_MAIL_NONE;
    }
    box->in_taken = nbytes;
    return CADRE_MAIL_MESSAGE;
}

static void drop_taken(cadre_mailbox *box)
{
    box->in_used -= box->in_taken;
    memmove(box->in, box->in + box->in_taken, box->in_used);
    box->in_taken = 0;
}

cadre_mail cadre_mailbox_receive(cadre_mailbox *box, cadre_message *out)
{
    drop_taken(box);
    cadre_mail mail = next_message(box, out);
    while (mail == CADRE_MAIL_NONE) {
        int passed;
        ssize_t n = cadre_socket_receive(box->socket, box->in + box->in_used,
            box->in_capacity - box->in_used, &passed);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return CADRE_MAIL_NONE;
        }
        if (n <= 0) {
            return CADRE_MAIL_ENDED;
        }
        box->in_used += (size_t)n;
        if (passed >= 0 && box->passed >= 0) {
            close(passed); // nobody sends two before one is taken
            return CADRE_MAIL_GARBAGE;
        }
        box->passed = passed >= 0 ? passed : box->passed;
        mail = next_message(box, out);
    }
    return mail;
}

int cadre_mailbox_take_passed(cadre_mailbox *box)
{
    int passed = box->passed;
    box->passed = -1;
    return passed;
}

cadre_writer cadre_mailbox_writer(cadre_mailbox *box)
{
    return (cadre_writer){.data = box->out,
        .used = box->out_used,
        .capacity = sizeof(box->out),
        .ok = true};
}

bool cadre_mailbox_post(cadre_mailbox *box, const cadre_writer *w)
{
    if (w->ok) {
        box->out_used = w->used;
        cadre_mailbox_flush(box);
    }
    return w->ok;
}

void cadre_mailbox_lend(cadre_mailbox *box, const uint8_t *data, size_t nbytes)
{
    CADRE_ASSERT(!cadre_mailbox_has_unsent(box));
    box->lent = data;
    box->lent_bytes = nbytes;
    cadre_mailbox_flush(box);
}

// How much of the bytes the socket took.
static size_t push_out(cadre_mailbox *box, const uint8_t *data, size_t nbytes)
{
    size_t sent = 0;
    while (box->socket >= 0 && sent < nbytes) {
        ssize_t n =
            cadre_socket_send(box->socket, data + sent, nbytes - sent, -1);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            break;
        }
        sent += (size_t)n;
    }
    return sent;
}

void cadre_mailbox_flush(cadre_mailbox *box)
{
    size_t sent = push_out(box, box->lent, box->lent_bytes);
    box->lent_bytes -= sent;
    box->lent = box->lent_bytes > 0 ? box->lent + sent : NULL;
    if (box->lent == NULL) {
        sent = push_out(box, box->out, box->out_used);
        box->out_used -= sent;
        memmove(box->out, box->out + sent, box->out_used);
    }
}

bool cadre_mailbox_has_unsent(const cadre_mailbox *box)
{
    return box->lent_bytes > 0 || box->out_used > 0;
}
