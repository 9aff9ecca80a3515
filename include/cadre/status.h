// SPDX-License-Identifier: Apache-2.0
//
// What every Cadre function that can fail returns, and the sentence with it.
//
//     cadre_status status = cadre_init(NULL, &world);
//     if (status != CADRE_OK) {
//         fprintf(stderr, "%s\n", cadre_error_text());
//     }
//
// Statuses are grouped by what is broken, so that the caller knows what to do
// next: docs/errors.md has the table.

#ifndef CADRE_STATUS_H
#define CADRE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CADRE_API        __attribute__((visibility("default")))
#define CADRE_MUST_CHECK __attribute__((warn_unused_result))
#else
#define CADRE_API
#define CADRE_MUST_CHECK
#endif

// clang-format off
#define CADRE_STATUS_LIST(X)                                                   \
    X(OK, 0, "success")                                                        \
    /* The call was refused.  Nothing has changed; the caller may go on. */    \
    X(ERR_INVALID_ARG, -1, "invalid argument")                                 \
    X(ERR_STATE, -2, "call not allowed in this state")                         \
    X(ERR_UNSUPPORTED, -3, "not supported")                                    \
    X(ERR_NO_MEMORY, -4, "out of memory")                                      \
    X(ERR_NOT_FOUND, -5, "not found")                                          \
    /* The operation failed.  The object it was called on is still usable. */  \
    X(ERR_IO, -20, "input/output error")                                       \
    X(ERR_CORRUPT, -21, "data does not match its checksum or format")          \
    X(ERR_NOT_FINITE, -22, "results are not finite")                           \
    /* The group is broken on every rank.  Destroy it and rendezvous again. */ \
    X(ERR_TIMEOUT, -40, "a peer did not answer in time")                       \
    X(ERR_PEER_LOST, -41, "a peer was lost")                                   \
    X(ERR_DESYNC, -42, "ranks disagree")                                       \
    X(ERR_ABORTED, -43, "group was aborted")                                   \
    /* A bug in this library. */                                               \
    X(ERR_INTERNAL, -60, "internal error")
// clang-format on

typedef enum cadre_status {
#define CADRE_STATUS_ENUM(name, value, text) CADRE_##name = (value),
    CADRE_STATUS_LIST(CADRE_STATUS_ENUM)
#undef CADRE_STATUS_ENUM
} cadre_status;

/** The status's name, such as "CADRE_ERR_TIMEOUT".  Never NULL.  Any thread. */
CADRE_API const char *cadre_status_name(cadre_status status);

/**
 * The sentence of the last failure on this thread: what, where, what to do.
 *
 * Never NULL; empty if nothing failed yet.  Valid until the next failure on the
 * same thread.  A success leaves it as it is.
 */
CADRE_API const char *cadre_error_text(void);

#ifdef __cplusplus
}
#endif

#endif // CADRE_STATUS_H
