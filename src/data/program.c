// SPDX-License-Identifier: Apache-2.0

#include "data/program.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// What was read so far.
typedef struct output {
    uint8_t *data;
    size_t used;
    size_t room;
} output;

static cadre_status make_room(output *o, size_t most, const char *name)
{
    enum { FIRST = 1 << 16 };
    if (o->used < o->room) {
        return CADRE_OK;
    }
    if (o->room >= most) {
        return cadre_fail(CADRE_ERR_CORRUPT,
            "'%s' wrote more than %zu bytes, which was not to be expected",
            name, most);
    }
    size_t room = o->room == 0 ? FIRST : 2 * o->room;
    room = room < most ? room : most;
    uint8_t *data = cadre_alloc(room);
    if (data == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    if (o->used > 0) {
        memcpy(data, o->data, o->used);
    }
    cadre_free(o->data);
    o->data = data;
    o->room = room;
    return CADRE_OK;
}

static cadre_status read_all(
    int fd, size_t most, cadre_deadline deadline, const char *name, output *o)
{
    enum { MOST_SLEEP_MS = 1000 };
    for (;;) {
        struct pollfd pipe_end = {.fd = fd, .events = POLLIN};
        int left = cadre_deadline_left_ms(deadline, MOST_SLEEP_MS);
        if (left <= 0) {
            return cadre_fail(CADRE_ERR_TIMEOUT,
                "'%s' has not ended in time and was stopped", name);
        }
        if (poll(&pipe_end, 1, left) <= 0) {
            continue; // nothing yet, or a signal
        }
        CADRE_TRY(make_room(o, most, name));
        ssize_t n = read(fd, o->data + o->used, o->room - o->used);
        if (n == 0) {
            return CADRE_OK;
        }
        if (n < 0 && errno != EINTR) {
            return cadre_fail_errno(
                CADRE_ERR_IO, errno, "cannot read what '%s' writes", name);
        }
        o->used += n > 0 ? (size_t)n : 0;
    }
}

// 0, or why it could not be started.
static int start(const char *const argv[], int to, pid_t *child)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    int error = posix_spawn_file_actions_init(&actions);
    if (error != 0) {
        return error;
    }
    error = posix_spawnattr_init(&attributes);
    if (error != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return error;
    }
    error |= posix_spawn_file_actions_addopen(
        &actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    error |= posix_spawn_file_actions_adddup2(&actions, to, STDOUT_FILENO);
    error |= posix_spawn_file_actions_addopen(
        &actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    error |= posix_spawnattr_setsigmask(&attributes, &none);
    error |= posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    if (error != 0) {
        error = ENOMEM; // what all of these fail for
    } else {
        // execve() takes the words as they are; its type is older than const.
        static char language[] = "LC_ALL=C";
        char *environment[] = {language, NULL};
        char *const *words;
        memcpy(&words, &argv, sizeof(words));
        error = posix_spawn(
            child, argv[0], &actions, &attributes, words, environment);
    }
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static cadre_status wait_for(pid_t child, const char *name)
{
    int how;
    pid_t ended;
    do {
        ended = waitpid(child, &how, 0);
    } while (ended < 0 && errno == EINTR);
    return ended == child && WIFEXITED(how) && WEXITSTATUS(how) == 0
               ? CADRE_OK
               : cadre_fail(CADRE_ERR_CORRUPT,
                     "'%s' failed or was stopped before its end", name);
}

static cadre_status run(const char *const argv[], const int ends[2],
    size_t most, cadre_deadline deadline, output *o)
{
    pid_t child;
    int error = start(argv, ends[1], &child);
    close(ends[1]);
    if (error != 0) {
        return cadre_fail_errno(
            error == ENOENT ? CADRE_ERR_NOT_FOUND : CADRE_ERR_IO, error,
            "cannot run '%s'", argv[0]);
    }
    cadre_status status = read_all(ends[0], most, deadline, argv[0], o);
    if (status != CADRE_OK) {
        kill(child, SIGKILL);
        (void)waitpid(child, NULL, 0);
        return status;
    }
    return wait_for(child, argv[0]);
}

cadre_status cadre_program_output(const char *const argv[], size_t most,
    int timeout_ms, uint8_t **data, size_t *nbytes)
{
    int ends[2];
    if (pipe(ends) != 0) {
        return cadre_fail_errno(CADRE_ERR_IO, errno, "cannot make a pipe");
    }
    // Not for the children of others that start at the same time.
    for (int i = 0; i < 2; i++) {
        (void)fcntl(ends[i], F_SETFD, FD_CLOEXEC);
    }
    output o = {0};
    cadre_status status =
        run(argv, ends, most, cadre_deadline_in_ms(timeout_ms), &o);
    close(ends[0]);
    if (status != CADRE_OK) {
        cadre_free(o.data);
        return status;
    }
    *data = o.data;
    *nbytes = o.used;
    return CADRE_OK;
}
