// SPDX-License-Identifier: Apache-2.0

#include "options.h"

#include "nearest.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Whether the nbytes at given spell name; '_' stands for '-' within it.
static bool same_name(const char *given, size_t nbytes, const char *name)
{
    if (strlen(name) != nbytes) {
        return false;
    }
    for (size_t i = 0; i < nbytes; i++) {
        bool alike = i > 1 && given[i] == '_' && name[i] == '-';
        if (!alike && given[i] != name[i]) {
            return false;
        }
    }
    return true;
}

static bool has_name(const option *o, const char *given, size_t nbytes)
{
    if (same_name(given, nbytes, o->name)) {
        return true;
    }
    const char *at = o->others == NULL ? "" : o->others;
    while (*at != '\0') {
        char other[64];
        size_t n = strcspn(at, " ");
        snprintf(other, sizeof(other), "%.*s", (int)n, at);
        if (same_name(given, nbytes, other)) {
            return true;
        }
        at += n + strspn(at + n, " ");
    }
    return false;
}

static void refuse_unknown(const char *command, const option *options,
    int n_options, const char *given, size_t nbytes)
{
    char word[64];
    snprintf(word, sizeof(word), "%.*s", (int)nbytes, given);
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): --help is there
    const char *best = options[0].name;
    for (int i = 1; i < n_options; i++) {
        if (options[i].help == NULL && options[i].kind != OPTION_UNBUILT) {
            continue; // between parts of the program
        }
        const char *pair[] = {best, options[i].name};
        best = nearest(word, pair, 2);
    }
    fprintf(stderr,
        "cadre %s: there is no option '%.*s'; did you mean '%s'?  "
        "`cadre %s --help` lists all\n",
        command, (int)nbytes, given, best, command);
}

static bool take_number(const char *command, const option *o, const char *text)
{
    char *end = NULL;
    errno = 0;
    const char *digits = *text == '-' ? text + 1 : text;
    long long n = strtoll(text, &end, 10);
    if (!isdigit((unsigned char)*digits) || *end != '\0' || errno != 0 ||
        n < o->lowest || n > o->highest) {
        fprintf(stderr,
            "cadre %s: %s wants a whole number from %" PRId64 " to %" PRId64
            ", not '%s'\n",
            command, o->name, o->lowest, o->highest, text);
        return false;
    }
    *(int64_t *)o->value = n;
    return true;
}

static bool take_value(const char *command, const option *o, const char *text)
{
    option_list *list = o->value;
    switch (o->kind) {
    case OPTION_NUMBER:
        return take_number(command, o, text);
    case OPTION_TEXT:
        *(const char **)o->value = text;
        return true;
    case OPTION_EACH:
        if (list->n == OPTION_LIST_MOST) {
            fprintf(stderr, "cadre %s: %s is given more than %d times\n",
                command, o->name, OPTION_LIST_MOST);
            return false;
        }
        list->texts[list->n++] = text;
        return true;
    case OPTION_FLAG:
    case OPTION_UNBUILT:
        break;
    }
    return false;
}

// Takes the option at argv[*at], and its value, which may be the next word.
static bool take(const char *command, const option *options, int n_options,
    int argc, char **argv, int *at)
{
    const char *given = argv[*at];
    size_t nbytes = strcspn(given, "=");
    const char *value = given[nbytes] == '=' ? given + nbytes + 1 : NULL;
    const option *o = NULL;
    for (int i = 0; i < n_options && o == NULL; i++) {
        o = has_name(&options[i], given, nbytes) ? &options[i] : NULL;
    }
    if (o == NULL) {
        refuse_unknown(command, options, n_options, given, nbytes);
        return false;
    }
    if (o->kind == OPTION_UNBUILT) {
        fprintf(stderr, "cadre %s: %s is not built yet\n", command, o->name);
        return false;
    }
    if (o->kind == OPTION_FLAG) {
        if (value != NULL) {
            fprintf(stderr, "cadre %s: %s takes no value\n", command, o->name);
            return false;
        }
        *(bool *)o->value = true;
        return true;
    }
    if (value == NULL && *at + 1 < argc) {
        value = argv[++*at];
    }
    if (value == NULL) {
        fprintf(stderr, "cadre %s: %s wants a value, %s\n", command, o->name,
            o->operand);
        return false;
    }
    return take_value(command, o, value);
}

bool options_parse(const char *command, const option *options, int n_options,
    option_words words, int argc, char **argv, int *n_words)
{
    int n = 0;
    int at = 1;
    for (bool ended = false; at < argc; at++) {
        bool is_word = argv[at][0] != '-' || argv[at][1] == '\0';
        if (!ended && strcmp(argv[at], "--") == 0) {
            ended = true;
        } else if (ended || is_word) {
            argv[n++] = argv[at];
            ended = ended || words == OPTION_WORDS_LAST;
        } else if (!take(command, options, n_options, argc, argv, &at)) {
            return false;
        }
    }
    *n_words = n;
    return true;
}

void options_help(const option *options, int n_options)
{
    for (int i = 0; i < n_options; i++) {
        const option *o = &options[i];
        if (o->help == NULL) {
            continue;
        }
        char left[40];
        snprintf(left, sizeof(left), "%s %s", o->name,
            o->operand == NULL ? "" : o->operand);
        printf("  %-18s %s\n", left, o->help);
    }
}
